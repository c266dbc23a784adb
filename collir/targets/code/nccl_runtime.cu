// The runtime of the NCCL target, in sections: `//: name needs other, another`.
// A program gets the sections it uses, in this order.

//: check
/* An error of CUDA is returned as ncclUnhandledCudaError. */
#define TRY(call) \
  do { ncclResult_t err = (call); if (err != ncclSuccess) return err; } while (0)
#define TRY_CUDA(call) \
  do { if ((call) != cudaSuccess) return ncclUnhandledCudaError; } while (0)

//: device_memory needs check
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

//: is_size
/* Whether (plus - minus) / by is an integer from least. Nothing overflows if about, a bound of all
 * three, is below 2^63. */
static bool is_size(size_t least, double about, size_t plus, size_t minus, size_t by)
{
  return about < 9.2e18 && plus >= minus && by > 0 && (plus - minus) % by == 0 &&
         (plus - minus) / by >= least;
}

//: compute_for
/* Stands for a computation of so many nanoseconds, for which a stream waits: put yours in its
 * place. */
static void compute_for(void *nanoseconds)
{
  std::this_thread::sleep_for(std::chrono::nanoseconds((size_t)nanoseconds));
}

//: copy_rows
/* `rows` pieces of `bytes` each, a stride apart in both arrays. */
static cudaError_t copy_rows(void *to, size_t to_stride, const void *from, size_t from_stride,
                             size_t rows, size_t bytes, cudaStream_t stream)
{
  cudaError_t err = cudaSuccess;
  if (to_stride <= INT_MAX && from_stride <= INT_MAX) /* the most that a pitch may be */
    return cudaMemcpy2DAsync(to, to_stride, from, from_stride, bytes, rows,
                             cudaMemcpyDeviceToDevice, stream);
  for (size_t i = 0; i < rows && err == cudaSuccess; ++i)
    err = cudaMemcpyAsync((char *)to + i * to_stride, (const char *)from + i * from_stride, bytes,
                          cudaMemcpyDeviceToDevice, stream);
  return err;
}

//: zero_rows
/* Zeros in `rows` pieces of `bytes` each, a stride apart; there may be none. */
static cudaError_t zero_rows(void *to, size_t stride, size_t rows, size_t bytes, cudaStream_t stream)
{
  cudaError_t err = cudaSuccess;
  if (rows > 0 && bytes > 0 && stride <= INT_MAX) /* the most that a pitch may be */
    return cudaMemset2DAsync(to, stride, 0, bytes, rows, stream);
  for (size_t i = 0; i < rows && err == cudaSuccess; ++i)
    err = cudaMemsetAsync((char *)to + i * stride, 0, bytes, stream);
  return err;
}

//: size_of
static size_t size_of(ncclDataType_t type)
{
  switch (type) {
    case ncclInt8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclFloat32: return 4;
    default: return 8;
  }
}

//: gather needs size_of
/* n elements from each rank to rank `root`, in one group: they have to progress together. */
static ncclResult_t gather(const void *in, void *out, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
  int rank = 0, p = 0;
  ncclResult_t err = ncclCommUserRank(comm, &rank), end;
  if (err == ncclSuccess) err = ncclCommCount(comm, &p);
  if (err == ncclSuccess) err = ncclGroupStart();
  if (err != ncclSuccess) return err;
  err = ncclSend(in, n, type, root, comm, stream);
  for (int i = 0; rank == root && i < p && err == ncclSuccess; ++i)
    err = ncclRecv((char *)out + i * n * size_of(type), n, type, i, comm, stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: scatter needs size_of
/* n elements for each rank from rank `root`, in one group: they have to progress together. */
static ncclResult_t scatter(const void *in, void *out, size_t n, ncclDataType_t type, int root,
                            ncclComm_t comm, cudaStream_t stream)
{
  int rank = 0, p = 0;
  ncclResult_t err = ncclCommUserRank(comm, &rank), end;
  if (err == ncclSuccess) err = ncclCommCount(comm, &p);
  if (err == ncclSuccess) err = ncclGroupStart();
  if (err != ncclSuccess) return err;
  for (int i = 0; rank == root && i < p && err == ncclSuccess; ++i)
    err = ncclSend((const char *)in + i * n * size_of(type), n, type, i, comm, stream);
  if (err == ncclSuccess) err = ncclRecv(out, n, type, root, comm, stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: all_to_all needs size_of
/* n elements for and from each rank, in one group: they have to progress together. */
static ncclResult_t all_to_all(const void *in, void *out, size_t n, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream)
{
  int p = 0;
  ncclResult_t err = ncclCommCount(comm, &p), end;
  if (err == ncclSuccess) err = ncclGroupStart();
  if (err != ncclSuccess) return err;
  for (int i = 0; i < p && err == ncclSuccess; ++i) {
    err = ncclSend((const char *)in + i * n * size_of(type), n, type, i, comm, stream);
    if (err == ncclSuccess)
      err = ncclRecv((char *)out + i * n * size_of(type), n, type, i, comm, stream);
  }
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: permute
/* `leaving` elements go to rank `to` while `coming` elements come from rank `from`; -1 is no rank. */
static ncclResult_t permute(const void *in, size_t leaving, int to, void *out, size_t coming,
                            int from, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
  ncclResult_t err = ncclGroupStart(), end;
  if (err != ncclSuccess) return err;
  if (to >= 0) err = ncclSend(in, leaving, type, to, comm, stream);
  if (from >= 0 && err == ncclSuccess) err = ncclRecv(out, coming, type, from, comm, stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: shift needs permute
/* This rank's block goes to rank `to` while the one of rank `from` comes; -1 is no rank. */
static ncclResult_t shift(const void *in, int to, void *out, int from, size_t n,
                          ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
  return permute(in, n, to, out, n, from, type, comm, stream);
}

//: symmetric needs check
/* Memory of the same size on all ranks, registered with some communicators for their symmetric
 * kernels. Where those are not supported, NCCL gives no window and sends as ever. */
template <int count> struct symmetric_memory {
  char *start;
  ncclWindow_t windows[count];
};

template <int count>
static ncclResult_t symmetric_free(symmetric_memory<count> *memory, const ncclComm_t *comms)
{
  ncclResult_t err = ncclSuccess, one;
  for (int i = 0; i < count; ++i)
    if (memory->windows[i] && (one = ncclCommWindowDeregister(comms[i], memory->windows[i])))
      err = one;
  if (memory->start && (one = ncclMemFree(memory->start))) err = one;
  *memory = {};
  return err;
}

template <int count>
static ncclResult_t symmetric_alloc(symmetric_memory<count> *memory, size_t bytes,
                                    const ncclComm_t *comms)
{
  ncclResult_t err;
  *memory = {};
  bytes = (bytes + NCCL_WIN_REQUIRED_ALIGNMENT - 1) / NCCL_WIN_REQUIRED_ALIGNMENT *
          NCCL_WIN_REQUIRED_ALIGNMENT;
  err = bytes ? ncclMemAlloc((void **)&memory->start, bytes) : ncclSuccess;
  for (int i = 0; bytes && i < count && err == ncclSuccess; ++i)
    err = ncclCommWindowRegister(comms[i], memory->start, bytes, &memory->windows[i],
                                 NCCL_WIN_COLL_SYMMETRIC);
  if (err != ncclSuccess) symmetric_free(memory, comms);
  return err;
}

//: launch
/* Enough blocks of THREADS for n elements, of which there may be none; a thread does several where
 * there are more. */
#define THREADS 256
static unsigned blocks(size_t n)
{
  return n < 65536 * THREADS ? (unsigned)((n + THREADS - 1) / THREADS + !n) : 65536;
}
#define FIRST ((size_t)blockIdx.x * blockDim.x + threadIdx.x)
#define STEP ((size_t)gridDim.x * blockDim.x)

//: blocks_before
/* The elements of the blocks before the q-th one. */
static inline size_t blocks_before(const size_t *counts, int q)
{
  size_t total = 0;
  for (int i = 0; i < q; ++i) total += counts[i];
  return total;
}

//: all_gather_blocks needs check, size_of, blocks_before
/* coming[r] elements from rank r, as a group of broadcasts. */
static ncclResult_t all_gather_blocks(const void *in, void *out, const size_t *coming,
                                      ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
  int p = 0;
  TRY(ncclCommCount(comm, &p));
  ncclResult_t err = ncclGroupStart(), end;
  if (err != ncclSuccess) return err;
  for (int r = 0; r < p && err == ncclSuccess; ++r)
    err = ncclBroadcast(in, (char *)out + blocks_before(coming, r) * size_of(type), coming[r], type,
                        r, comm, stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: reduce_scatter_blocks needs check, size_of, blocks_before
/* leaving[r] elements for rank r, as a group of reductions. */
static ncclResult_t reduce_scatter_blocks(const void *in, void *out, const size_t *leaving,
                                          ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                          cudaStream_t stream)
{
  int p = 0;
  TRY(ncclCommCount(comm, &p));
  ncclResult_t err = ncclGroupStart(), end;
  if (err != ncclSuccess) return err;
  for (int r = 0; r < p && err == ncclSuccess; ++r)
    err = ncclReduce((const char *)in + blocks_before(leaving, r) * size_of(type), out, leaving[r],
                     type, op, r, comm, stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: gather_blocks needs check, size_of, blocks_before
/* coming[r] elements from rank r to rank `root`, in one group. */
static ncclResult_t gather_blocks(const void *in, void *out, const size_t *coming,
                                  ncclDataType_t type, int root, ncclComm_t comm,
                                  cudaStream_t stream)
{
  int rank = 0, p = 0;
  TRY(ncclCommUserRank(comm, &rank));
  TRY(ncclCommCount(comm, &p));
  ncclResult_t err = ncclGroupStart(), end;
  if (err != ncclSuccess) return err;
  err = ncclSend(in, coming[rank], type, root, comm, stream);
  for (int r = 0; rank == root && r < p && err == ncclSuccess; ++r)
    err = ncclRecv((char *)out + blocks_before(coming, r) * size_of(type), coming[r], type, r, comm,
                   stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: scatter_blocks needs check, size_of, blocks_before
/* leaving[r] elements for rank r from rank `root`, in one group. */
static ncclResult_t scatter_blocks(const void *in, void *out, const size_t *leaving,
                                   ncclDataType_t type, int root, ncclComm_t comm,
                                   cudaStream_t stream)
{
  int rank = 0, p = 0;
  TRY(ncclCommUserRank(comm, &rank));
  TRY(ncclCommCount(comm, &p));
  ncclResult_t err = ncclGroupStart(), end;
  if (err != ncclSuccess) return err;
  for (int r = 0; rank == root && r < p && err == ncclSuccess; ++r)
    err = ncclSend((const char *)in + blocks_before(leaving, r) * size_of(type), leaving[r], type, r,
                   comm, stream);
  if (err == ncclSuccess) err = ncclRecv(out, leaving[rank], type, root, comm, stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: all_to_all_blocks needs check, size_of, blocks_before
/* leaving[q] elements for rank q, and coming[q] from it, in one group. */
static ncclResult_t all_to_all_blocks(const void *in, void *out, const size_t *leaving,
                                      const size_t *coming, ncclDataType_t type, ncclComm_t comm,
                                      cudaStream_t stream)
{
  int p = 0;
  TRY(ncclCommCount(comm, &p));
  ncclResult_t err = ncclGroupStart(), end;
  if (err != ncclSuccess) return err;
  for (int q = 0; q < p && err == ncclSuccess; ++q) {
    err = ncclSend((const char *)in + blocks_before(leaving, q) * size_of(type), leaving[q], type, q,
                   comm, stream);
    if (err == ncclSuccess)
      err = ncclRecv((char *)out + blocks_before(coming, q) * size_of(type), coming[q], type, q, comm,
                     stream);
  }
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}
