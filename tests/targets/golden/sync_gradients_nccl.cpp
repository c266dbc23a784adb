/* Written by collir VERSION: C++17, CUDA and NCCL 2.18 or newer. It has no kernels: any C++
 * compiler will do.
 *
 * All ranks of a communicator, which stays the caller's, get a handle by MESH_create, call
 * functions with it and with buffers on their device, which must not overlap, and give it back by
 * MESH_destroy. Functions put work on the stream and do not wait for it; MESH_synchronize does, and
 * ends when a communicator fails. A handle has communicators, and streams if functions use any, so
 * it is for one thread at a time; a process may have several, of one rank or more. All functions
 * return ncclSuccess or an error of NCCL, which is ncclUnhandledCudaError for those of CUDA. Where
 * a rank holds nothing of a value, its buffer is not touched and may be NULL.
 *   struct m_mesh;
 *   ncclResult_t m_create(ncclComm_t comm, struct m_mesh **mesh);
 *   ncclResult_t m_destroy(struct m_mesh *mesh);
 *   ncclResult_t m_synchronize(struct m_mesh *mesh, cudaStream_t stream);
 *   ncclResult_t sync_gradients(struct m_mesh *mesh, const float *g, float *r, cudaStream_t stream);
 */
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cuda_runtime.h>
#include <nccl.h>

/* An error of CUDA is returned as ncclUnhandledCudaError. */
#define TRY(call) \
  do { ncclResult_t err = (call); if (err != ncclSuccess) return err; } while (0)
#define TRY_CUDA(call) \
  do { if ((call) != cudaSuccess) return ncclUnhandledCudaError; } while (0)

/* Memory of the device that is free again when the stream gets to where its scope ends. */
class device_memory {
  char *start = nullptr;
  const cudaStream_t stream;

public:
  explicit device_memory(cudaStream_t on) : stream(on) {}
  device_memory(const device_memory &) = delete;
  device_memory &operator=(const device_memory &) = delete;
  ~device_memory() { if (start) cudaFreeAsync(start, stream); }
  operator char *() const { return start; }

  ncclResult_t allocate(size_t bytes)
  {
    TRY_CUDA(cudaMallocAsync((void **)&start, bytes, stream));
    return ncclSuccess;
  }
};

/* mesh @m on @cluster: 8 ranks, data = node:2 * gpu:4. */
struct m_mesh {
  ncclComm_t comm; /* the caller's */
  int rank;
  int data_node, data_gpu; /* this rank's coordinates */
  ncclComm_t over_data_gpu; /* ranks that differ in data.gpu only */
  ncclComm_t over_data_node; /* ranks that differ in data.node only */
};

extern "C" ncclResult_t m_destroy(struct m_mesh *mesh)
{
  ncclResult_t err = ncclSuccess;
  ncclResult_t one;
  if (!mesh) return err;
  if (mesh->over_data_gpu && (one = ncclCommDestroy(mesh->over_data_gpu)) != ncclSuccess) err = one;
  if (mesh->over_data_node && (one = ncclCommDestroy(mesh->over_data_node)) != ncclSuccess) err = one;
  free(mesh);
  return err;
}

static ncclResult_t collir_fill_m(struct m_mesh *mesh, ncclComm_t comm)
{
  int size = 0;
  TRY(ncclCommCount(comm, &size));
  if (size != 8) return ncclInvalidArgument;
  mesh->comm = comm;
  TRY(ncclCommUserRank(comm, &mesh->rank));
  mesh->data_node = mesh->rank / 4;
  mesh->data_gpu = mesh->rank % 4;
  TRY(ncclCommSplit(comm, mesh->data_node,
                    mesh->data_gpu, &mesh->over_data_gpu, NULL));
  TRY(ncclCommSplit(comm, mesh->data_gpu,
                    mesh->data_node, &mesh->over_data_node, NULL));
  return ncclSuccess;
}

extern "C" ncclResult_t m_create(ncclComm_t comm, struct m_mesh **made)
{
  struct m_mesh *mesh = (struct m_mesh *)calloc(1, sizeof(struct m_mesh));
  ncclResult_t err = mesh ? collir_fill_m(mesh, comm) : ncclSystemError;
  if (err != ncclSuccess && mesh) m_destroy(mesh);
  *made = err == ncclSuccess ? mesh : NULL;
  return err;
}

/* Waits for the stream. Where a communicator fails, aborts those of the mesh. */
extern "C" ncclResult_t m_synchronize(struct m_mesh *mesh, cudaStream_t stream)
{
  cudaError_t cuda;
  do {
    ncclResult_t found = ncclSuccess;
    const ncclComm_t comms[] = {mesh->over_data_gpu, mesh->over_data_node};
    cuda = cudaStreamQuery(stream);
    for (ncclComm_t comm : comms) {
      TRY(ncclCommGetAsyncError(comm, &found));
      if (found != ncclSuccess && found != ncclInProgress) {
        ncclCommAbort(mesh->over_data_gpu);
        ncclCommAbort(mesh->over_data_node);
        mesh->over_data_gpu = NULL;
        mesh->over_data_node = NULL;
        return found;
      }
    }
  } while (cuda == cudaErrorNotReady);
  return cuda == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* g[1048576] is f32[1048576] partial(sum: data);
 * r[1048576] is f32[1048576]. */
extern "C" ncclResult_t sync_gradients(struct m_mesh *mesh, const float *g, float *r,
                                       cudaStream_t stream)
{
  device_memory held(stream);
  TRY(held.allocate(2097152));
  char *const memory = held;
  float *v0 = (float *)memory;
  float *v1 = (float *)(memory + 1048576);
  // %0 = reduce_scatter %g over data.gpu dim 0
  TRY(ncclReduceScatter(g, v0, 262144, ncclFloat32, ncclSum, mesh->over_data_gpu, stream));
  // %1 = all_reduce %0 over data.node
  TRY(ncclAllReduce(v0, v1, 262144, ncclFloat32, ncclSum, mesh->over_data_node, stream));
  // %r = all_gather %1 over data.gpu dim 0
  TRY(ncclAllGather(v1, r, 262144, ncclFloat32, mesh->over_data_gpu, stream));
  return ncclSuccess;
}
