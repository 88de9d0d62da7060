// In an installed package this file is core/base/dtype.h itself (core/CMakeLists.txt).
#pragma once

#include "core/base/dtype.h"
