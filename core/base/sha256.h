// SHA-256 (FIPS 180-4): names that are the same in every process and differ for all that differs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace kerascnn {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view bytes);

// 64 hexadecimal digits.
std::string hex(const Digest& digest);

}  // namespace kerascnn
