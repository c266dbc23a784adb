// The runtime of the NCCL target, in sections: `//: name needs other, another`.
// A program gets the sections it uses, in this order.

//: check
/* An error of CUDA is returned as ncclUnhandledCudaError. */
#define TRY(call) \
  do { ncclResult_t err = (call); if (err != ncclSuccess) return err; } while (0)
#define TRY_CUDA(call) \
  do { if ((call) != cudaSuccess) return ncclUnhandledCudaError; } while (0)

//: device_memory needs check
/* Memory of the device that is free again when the stream gets to where it is released. */
template <typename T> class device_memory {
  T *start = nullptr;
  const cudaStream_t stream;

public:
  explicit device_memory(cudaStream_t on) : stream(on) {}
  device_memory(const device_memory &) = delete;
  device_memory &operator=(const device_memory &) = delete;
  ~device_memory() { release(); }
  operator T *() const { return start; }

  ncclResult_t allocate(size_t count)
  {
    TRY_CUDA(cudaMallocAsync((void **)&start, count * sizeof(T), stream));
    return ncclSuccess;
  }
  void release()
  {
    if (start) cudaFreeAsync(start, stream);
    start = nullptr;
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

//: swap_blocks needs copy_rows
/* [a][b] blocks of `bytes` each become [b][a]. */
static cudaError_t swap_blocks(void *to, const void *from, size_t a, size_t b, size_t bytes,
                               cudaStream_t stream)
{
  cudaError_t err = cudaSuccess;
  if (a < b)
    for (size_t i = 0; i < a && err == cudaSuccess; ++i)
      err = copy_rows((char *)to + i * bytes, a * bytes, (const char *)from + i * b * bytes, bytes,
                      b, bytes, stream);
  else
    for (size_t j = 0; j < b && err == cudaSuccess; ++j)
      err = copy_rows((char *)to + j * a * bytes, bytes, (const char *)from + j * bytes, b * bytes,
                      a, bytes, stream);
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
/* n elements from each rank, in one group: they have to progress together. */
static ncclResult_t gather(const void *in, void *out, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
  int rank = 0, p = 0;
  ncclResult_t err = ncclCommUserRank(comm, &rank), end;
  if (err == ncclSuccess) err = ncclCommCount(comm, &p);
  if (err == ncclSuccess) err = ncclGroupStart();
  if (err != ncclSuccess) return err;
  err = ncclSend(in, n, type, 0, comm, stream);
  for (int i = 0; rank == 0 && i < p && err == ncclSuccess; ++i)
    err = ncclRecv((char *)out + i * n * size_of(type), n, type, i, comm, stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: scatter needs size_of
/* n elements for each rank, in one group: they have to progress together. */
static ncclResult_t scatter(const void *in, void *out, size_t n, ncclDataType_t type,
                            ncclComm_t comm, cudaStream_t stream)
{
  int rank = 0, p = 0;
  ncclResult_t err = ncclCommUserRank(comm, &rank), end;
  if (err == ncclSuccess) err = ncclCommCount(comm, &p);
  if (err == ncclSuccess) err = ncclGroupStart();
  if (err != ncclSuccess) return err;
  for (int i = 0; rank == 0 && i < p && err == ncclSuccess; ++i)
    err = ncclSend((const char *)in + i * n * size_of(type), n, type, i, comm, stream);
  if (err == ncclSuccess) err = ncclRecv(out, n, type, 0, comm, stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: scatter_from needs size_of
/* n elements for each rank from rank `root`, in one group: they have to progress together. */
static ncclResult_t scatter_from(const void *in, void *out, size_t n, ncclDataType_t type,
                                 int root, ncclComm_t comm, cudaStream_t stream)
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
/* `leaving` elements go to rank `to` while `coming` elements come from rank `from`. */
static ncclResult_t permute(const void *in, size_t leaving, int to, void *out, size_t coming,
                            int from, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
  ncclResult_t err = ncclGroupStart(), end;
  if (err != ncclSuccess) return err;
  err = ncclSend(in, leaving, type, to, comm, stream);
  if (err == ncclSuccess) err = ncclRecv(out, coming, type, from, comm, stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: shift
/* This rank's block goes to rank `to` while the one of rank `from` comes; -1 is no rank. */
static ncclResult_t shift(const void *in, int to, void *out, int from, size_t n,
                          ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
  ncclResult_t err = ncclGroupStart(), end;
  if (err != ncclSuccess) return err;
  if (to >= 0) err = ncclSend(in, n, type, to, comm, stream);
  if (from >= 0 && err == ncclSuccess) err = ncclRecv(out, n, type, from, comm, stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
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
/* Enough blocks of THREADS for n elements; a thread does several where there are more. */
#define THREADS 256
static unsigned blocks(size_t n)
{
  return n < 65536 * THREADS ? (unsigned)((n + THREADS - 1) / THREADS) : 65536;
}
#define FIRST ((size_t)blockIdx.x * blockDim.x + threadIdx.x)
#define STEP ((size_t)gridDim.x * blockDim.x)

//: units_before
/* The sum of the first `count` parts. */
static inline size_t units_before(const int *parts, int count)
{
  size_t total = 0;
  for (int i = 0; i < count; ++i) total += (size_t)parts[i];
  return total;
}

//: move_blocks needs copy_rows, units_before
/* The blocks of parts[r] units side by side in rows become blocks one behind the other, or back. The
 * latter are `most` units apart, or close together where most is 0; a unit has `bytes` in a row. */
static cudaError_t move_blocks(void *blocks, void *side_by_side, bool back, const int *parts, int p,
                               size_t most, size_t bytes, size_t rows, cudaStream_t stream)
{
  cudaError_t err = cudaSuccess;
  size_t row = units_before(parts, p) * bytes;
  for (int r = 0; r < p && err == cudaSuccess; ++r) {
    size_t start = units_before(parts, r), wide = (size_t)parts[r] * bytes;
    char *block = (char *)blocks + (most ? (size_t)r * most : start) * rows * bytes;
    char *place = (char *)side_by_side + start * bytes;
    err = back ? copy_rows(place, row, block, wide, rows, wide, stream)
               : copy_rows(block, wide, place, row, rows, wide, stream);
  }
  return err;
}

//: all_gather_blocks needs check, size_of, move_blocks
/* parts[r] units from rank r, each of n elements in every row: by a group of broadcasts, or with
 * blocks as large as `most` units if that is not 0. `packed` has the blocks one behind the other; it
 * is NULL where they come so. */
static ncclResult_t all_gather_blocks(const void *in, void *out, void *packed, const int *parts,
                                      size_t most, size_t n, size_t rows, ncclDataType_t type,
                                      ncclComm_t comm, cudaStream_t stream)
{
  int rank = 0, p = 0;
  size_t unit = rows * n, bytes = size_of(type);
  char *coming = (char *)(packed ? packed : out);
  TRY(ncclCommUserRank(comm, &rank));
  TRY(ncclCommCount(comm, &p));
  if (most) {
    char *own = coming + (size_t)rank * most * unit * bytes;
    TRY_CUDA(cudaMemcpyAsync(own, in, (size_t)parts[rank] * unit * bytes, cudaMemcpyDeviceToDevice,
                             stream));
    TRY(ncclAllGather(own, coming, most * unit, type, comm, stream));
  } else {
    ncclResult_t err = ncclGroupStart(), end;
    if (err != ncclSuccess) return err;
    for (int r = 0; r < p && err == ncclSuccess; ++r)
      err = ncclBroadcast(in, coming + units_before(parts, r) * unit * bytes,
                          (size_t)parts[r] * unit, type, r, comm, stream);
    end = ncclGroupEnd();
    if (err != ncclSuccess || end != ncclSuccess) return err != ncclSuccess ? err : end;
  }
  if (packed) TRY_CUDA(move_blocks(packed, out, true, parts, p, most, n * bytes, rows, stream));
  return ncclSuccess;
}

//: reduce_scatter_blocks needs check, size_of, move_blocks
/* parts[r] units for rank r, each of n elements in every row: by a group of reductions, or with
 * blocks as large as `most` units if that is not 0. `packed` has the blocks one behind the other; it
 * is NULL where they leave so. */
static ncclResult_t reduce_scatter_blocks(const void *in, void *out, void *packed, const int *parts,
                                          size_t most, size_t n, size_t rows, ncclDataType_t type,
                                          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
  int rank = 0, p = 0;
  size_t unit = rows * n, bytes = size_of(type);
  const char *leaving = (const char *)(packed ? packed : in);
  TRY(ncclCommUserRank(comm, &rank));
  TRY(ncclCommCount(comm, &p));
  if (most) TRY_CUDA(cudaMemsetAsync(packed, 0, (size_t)p * most * unit * bytes, stream));
  if (packed)
    TRY_CUDA(move_blocks(packed, (void *)in, false, parts, p, most, n * bytes, rows, stream));
  if (most) {
    char *own = (char *)packed + (size_t)rank * most * unit * bytes;
    TRY(ncclReduceScatter(packed, own, most * unit, type, op, comm, stream));
    TRY_CUDA(cudaMemcpyAsync(out, own, (size_t)parts[rank] * unit * bytes,
                             cudaMemcpyDeviceToDevice, stream));
    return ncclSuccess;
  }
  ncclResult_t err = ncclGroupStart(), end;
  if (err != ncclSuccess) return err;
  for (int r = 0; r < p && err == ncclSuccess; ++r)
    err = ncclReduce(leaving + units_before(parts, r) * unit * bytes, out,
                     (size_t)parts[r] * unit, type, op, r, comm, stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: gather_blocks needs check, size_of, move_blocks
/* parts[r] units from rank r, each of n elements in every row, in one group. */
static ncclResult_t gather_blocks(const void *in, void *out, void *packed, const int *parts,
                                  size_t n, size_t rows, ncclDataType_t type, ncclComm_t comm,
                                  cudaStream_t stream)
{
  int rank = 0, p = 0;
  size_t unit = rows * n, bytes = size_of(type);
  char *coming = (char *)(packed ? packed : out);
  TRY(ncclCommUserRank(comm, &rank));
  TRY(ncclCommCount(comm, &p));
  ncclResult_t err = ncclGroupStart(), end;
  if (err != ncclSuccess) return err;
  err = ncclSend(in, (size_t)parts[rank] * unit, type, 0, comm, stream);
  for (int r = 0; rank == 0 && r < p && err == ncclSuccess; ++r)
    err = ncclRecv(coming + units_before(parts, r) * unit * bytes, (size_t)parts[r] * unit, type, r,
                   comm, stream);
  end = ncclGroupEnd();
  if (err != ncclSuccess || end != ncclSuccess) return err != ncclSuccess ? err : end;
  if (packed && rank == 0)
    TRY_CUDA(move_blocks(packed, out, true, parts, p, 0, n * bytes, rows, stream));
  return ncclSuccess;
}

//: scatter_blocks needs check, size_of, move_blocks
/* parts[r] units for rank r, each of n elements in every row, in one group. */
static ncclResult_t scatter_blocks(const void *in, void *out, void *packed, const int *parts,
                                   size_t n, size_t rows, ncclDataType_t type, ncclComm_t comm,
                                   cudaStream_t stream)
{
  int rank = 0, p = 0;
  size_t unit = rows * n, bytes = size_of(type);
  const char *leaving = (const char *)(packed ? packed : in);
  TRY(ncclCommUserRank(comm, &rank));
  TRY(ncclCommCount(comm, &p));
  if (packed && rank == 0)
    TRY_CUDA(move_blocks(packed, (void *)in, false, parts, p, 0, n * bytes, rows, stream));
  ncclResult_t err = ncclGroupStart(), end;
  if (err != ncclSuccess) return err;
  for (int r = 0; rank == 0 && r < p && err == ncclSuccess; ++r)
    err = ncclSend(leaving + units_before(parts, r) * unit * bytes, (size_t)parts[r] * unit, type, r,
                   comm, stream);
  if (err == ncclSuccess) err = ncclRecv(out, (size_t)parts[rank] * unit, type, 0, comm, stream);
  end = ncclGroupEnd();
  return err != ncclSuccess ? err : end;
}

//: all_to_all_blocks needs check, size_of, move_blocks
/* leaving[q] units for rank q with n_out elements in each of rows_out rows, and coming[q] from it,
 * in one group. The buffers that are not NULL have the blocks one behind the other. */
static ncclResult_t all_to_all_blocks(const void *in, void *out, void *packed, void *unpacked,
                                      const int *leaving, size_t n_out, size_t rows_out,
                                      const int *coming, size_t n_in, size_t rows_in,
                                      ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)
{
  int p = 0;
  size_t leaves = rows_out * n_out, comes = rows_in * n_in, bytes = size_of(type);
  const char *from = (const char *)(packed ? packed : in);
  char *to = (char *)(unpacked ? unpacked : out);
  TRY(ncclCommCount(comm, &p));
  if (packed)
    TRY_CUDA(move_blocks(packed, (void *)in, false, leaving, p, 0, n_out * bytes, rows_out, stream));
  ncclResult_t err = ncclGroupStart(), end;
  if (err != ncclSuccess) return err;
  for (int q = 0; q < p && err == ncclSuccess; ++q) {
    err = ncclSend(from + units_before(leaving, q) * leaves * bytes, (size_t)leaving[q] * leaves,
                   type, q, comm, stream);
    if (err == ncclSuccess)
      err = ncclRecv(to + units_before(coming, q) * comes * bytes, (size_t)coming[q] * comes, type,
                     q, comm, stream);
  }
  end = ncclGroupEnd();
  if (err != ncclSuccess || end != ncclSuccess) return err != ncclSuccess ? err : end;
  if (unpacked)
    TRY_CUDA(move_blocks(unpacked, out, true, coming, p, 0, n_in * bytes, rows_in, stream));
  return ncclSuccess;
}
