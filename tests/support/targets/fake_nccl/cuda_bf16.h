// CUDA's bfloat16: the float nearest to x among those with 16 zeros at their end.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
struct __nv_bfloat16 {
  uint16_t x;
};
inline float __bfloat162float(__nv_bfloat16 h)
{
  uint32_t bits = (uint32_t)h.x << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}
inline __nv_bfloat16 __float2bfloat16_rn(float f)
{
  uint32_t bits, low;
  memcpy(&bits, &f, sizeof bits);
  if (std::isnan(f)) return {0x7fff};
  low = bits & 0xffff;
  bits >>= 16;
  if (low > 0x8000 || (low == 0x8000 && bits % 2 == 1)) ++bits;
  return {(uint16_t)bits};
}
