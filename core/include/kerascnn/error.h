// In an installed package this file is core/base/error.h itself (core/CMakeLists.txt).
#pragma once

#include "core/base/error.h"
