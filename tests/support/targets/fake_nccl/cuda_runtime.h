// The part of CUDA's runtime that emitted code uses, on the host: work of a stream is queued, and
// done when something waits for the stream. Misuse is said, and ends the program.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

#define __global__
#define __device__
#define __host__

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidPitchValue = 12,
  cudaErrorNotReady = 600
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
extern thread_local dim3 blockIdx, threadIdx, blockDim, gridDim;

struct fake_stream;
struct fake_event;
typedef fake_stream *cudaStream_t;
typedef fake_event *cudaEvent_t;

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaMalloc(void **p, size_t bytes);
template <typename T> cudaError_t cudaMalloc(T **p, size_t bytes)
{
  return cudaMalloc((void **)p, bytes);
}
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void *p, cudaStream_t stream);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemset(void *p, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream);
cudaError_t cudaStreamCreate(cudaStream_t *stream);
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
typedef void (*cudaHostFn_t)(void *data);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaGetLastError();
const char *cudaGetErrorString(cudaError_t err);

// What a test makes of kernel<<<grid, block, 0, stream>>>(arguments).
void fake_enqueue(cudaStream_t stream, std::function<void()> work);
void fake_require(bool condition, const char *what);
void fake_on_device(const void *p, size_t bytes, const char *what);

template <typename T> void fake_argument(T *p) { fake_on_device(p, sizeof(T), "of a kernel"); }
template <typename T> void fake_argument(const T &) {}

template <typename T> struct fake_type { typedef T is; };

// One for each list of parameters, whatever is given for them: compilers take long for templates.
template <typename... P>
void fake_launch(void (*kernel)(P...), unsigned grid, unsigned block, cudaStream_t stream,
                 typename fake_type<P>::is... arguments)
{
  fake_require(grid > 0 && grid < 1u << 31 && block > 0 && block <= 1024, "a launch without threads");
  (fake_argument(arguments), ...);
  fake_enqueue(stream, [=] {
    gridDim = dim3(grid);
    blockDim = dim3(block);
    for (unsigned i = 0; i < grid; ++i)
      for (unsigned j = 0; j < block; ++j) {
        blockIdx = dim3(i, 0, 0);
        threadIdx = dim3(j, 0, 0);
        kernel(arguments...);
      }
  });
}
