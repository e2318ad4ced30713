#pragma once

#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
  std::uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 value) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value.bits) << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  if (value != value) return {0x7fff};
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits += 0x7fff + ((bits >> 16) & 1);  // to the nearest, ties to even
  return {static_cast<std::uint16_t>(bits >> 16)};
}
