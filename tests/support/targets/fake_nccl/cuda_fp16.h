// CUDA's half precision, as the compiler's own.
#pragma once
struct __half {
  _Float16 x;
};
inline float __half2float(__half h) { return (float)h.x; }
inline __half __float2half_rn(float f) { return {(_Float16)f}; }
inline __half __double2half(double d) { return {(_Float16)d}; }
