// Both fakes. Collectives send whole operands to all ranks and reduce in the order of the ranks.
// An average multiplies by the rounded 1/n first, as NCCL does.
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "nccl.h"
#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mpi.h>
#include <mutex>
#include <set>
#include <unistd.h>
#include <vector>

thread_local dim3 blockIdx, threadIdx, blockDim, gridDim;

struct fake_stream {
  std::deque<std::function<void()>> work;
};
struct fake_event {
  double at = -1;
  fake_stream *stream = nullptr;
  std::shared_ptr<bool> done; // of what was recorded last
};
struct fake_window {
  ncclComm *comm;
  char *start;
  size_t bytes;
};

/* Prints it, and appends it to a file: mpiexec may lose what an aborting rank has printed. */
static void say(const char *what)
{
  fprintf(stderr, "misuse: %s\n", what);
  fflush(stderr);
  const char *path = getenv("FAKE_NCCL_MISUSE");
  if (FILE *file = path ? fopen(path, "a") : nullptr) {
    fprintf(file, "%s\n", what);
    fclose(file);
  }
}

void fake_require(bool condition, const char *what)
{
  if (condition) return;
  say(what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  _exit(1);
}

// --- memory --------------------------------------------------------------------------------------

static std::mutex lock;
static std::map<const char *, size_t> device, registrable;
static std::set<fake_window *> windows;
static std::set<ncclComm *> live;

static struct at_exit {
  ~at_exit()
  {
    if (device.empty() && windows.empty() && live.empty()) return;
    char what[100];
    snprintf(what, sizeof what, "%zu buffers, %zu windows, %zu communicators left", device.size(),
             windows.size(), live.size());
    say(what);
    _exit(1);
  }
} at_exit;

static bool on_device(const void *p)
{
  std::lock_guard<std::mutex> guard(lock);
  auto next = device.upper_bound((const char *)p);
  if (next == device.begin()) return false;
  --next;
  return (const char *)p < next->first + next->second;
}

void fake_on_device(const void *p, size_t bytes, const char *what)
{
  char text[200];
  snprintf(text, sizeof text, "a buffer %s is no device memory of %zu bytes", what, bytes);
  std::lock_guard<std::mutex> guard(lock);
  auto next = device.upper_bound((const char *)p);
  fake_require(next != device.begin(), text);
  --next;
  size_t offset = (size_t)((const char *)p - next->first);
  fake_require(offset <= next->second && bytes <= next->second - offset, text);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
  fake_require(bytes > 0, "memory of no bytes");
  *p = malloc(bytes);
  fake_require(*p != nullptr, "out of memory");
  memset(*p, 0xa5, bytes);
  std::lock_guard<std::mutex> guard(lock);
  device[(const char *)*p] = bytes;
  return cudaSuccess;
}

static void forget(void *p)
{
  std::lock_guard<std::mutex> guard(lock);
  auto found = device.find((const char *)p);
  fake_require(found != device.end(), "freed what is not allocated");
  memset(p, 0x5a, found->second);
  device.erase(found);
}

cudaError_t cudaFree(void *p)
{
  if (!p) return cudaSuccess;
  forget(p);
  free(p);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t) { return cudaMalloc(p, bytes); }

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
  size_t bytes;
  {
    std::lock_guard<std::mutex> guard(lock);
    auto found = device.find((const char *)p);
    fake_require(found != device.end(), "freed what is not allocated");
    bytes = found->second;
    device.erase(found); // nothing may be queued on it from here
  }
  fake_enqueue(stream, [=] {
    memset(p, 0x5a, bytes);
    free(p);
  });
  return cudaSuccess;
}

static void check_kind(const void *to, const void *from, cudaMemcpyKind kind, size_t to_bytes,
                       size_t from_bytes)
{
  if (kind == cudaMemcpyDeviceToHost) fake_require(!on_device(to), "a copy to the host is not");
  else fake_on_device(to, to_bytes, "a copy goes to");
  if (kind == cudaMemcpyHostToDevice) fake_require(!on_device(from), "a copy from the host is not");
  else fake_on_device(from, from_bytes, "a copy comes from");
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
  check_kind(to, from, kind, bytes, bytes);
  memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
  check_kind(to, from, kind, bytes, bytes);
  fake_enqueue(stream, [=] { memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream)
{
  fake_require(width > 0 && height > 0, "a copy of nothing");
  fake_require(to_pitch <= INT_MAX && from_pitch <= INT_MAX, "a pitch beyond the most");
  fake_require(width <= to_pitch && width <= from_pitch, "a pitch below the width");
  check_kind(to, from, kind, (height - 1) * to_pitch + width, (height - 1) * from_pitch + width);
  fake_enqueue(stream, [=] {
    for (size_t i = 0; i < height; ++i)
      memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
  });
  return cudaSuccess;
}

cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
  fake_on_device(p, bytes, "to set");
  memset(p, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
  fake_on_device(p, bytes, "to set");
  fake_enqueue(stream, [=] { memset(p, value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void *p, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
  fake_require(width > 0 && height > 0, "rows of nothing");
  fake_require(pitch <= INT_MAX && width <= pitch, "a pitch below the width, or beyond the most");
  fake_on_device(p, (height - 1) * pitch + width, "to set");
  fake_enqueue(stream, [=] {
    for (size_t i = 0; i < height; ++i) memset((char *)p + i * pitch, value, width);
  });
  return cudaSuccess;
}

// --- streams -------------------------------------------------------------------------------------

void fake_enqueue(cudaStream_t stream, std::function<void()> work)
{
  fake_require(stream != nullptr, "the default stream is not used here");
  stream->work.push_back(std::move(work));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
  fake_enqueue(stream, [=] { function(data); });
  return cudaSuccess;
}

static void run_first(cudaStream_t stream)
{
  auto work = std::move(stream->work.front());
  stream->work.pop_front();
  work();
}

static void flush(cudaStream_t stream)
{
  while (!stream->work.empty()) run_first(stream);
}

cudaError_t cudaGetDeviceCount(int *count) { return *count = 16, cudaSuccess; }
cudaError_t cudaSetDevice(int number)
{
  return number < 0 || number >= 16 ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return *stream = new fake_stream, cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
  flush(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return flush(stream), cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
  if (stream->work.empty()) return cudaSuccess;
  flush(stream);
  return cudaErrorNotReady;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return *event = new fake_event, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
  auto done = std::make_shared<bool>(false);
  event->stream = stream;
  event->done = done;
  fake_enqueue(stream, [=] {
    event->at = MPI_Wtime();
    *done = true;
  });
  return cudaSuccess;
}
/* What other streams do is done no sooner than a stream has to wait for it. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
  if (!event->done) return cudaSuccess; // nothing was recorded
  auto source = event->stream;
  auto done = event->done;
  fake_enqueue(stream, [=] {
    while (!*done) run_first(source);
  });
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
  return cudaStreamCreate(stream);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
  return cudaEventCreate(event);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return flush(event->stream), cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
  if (start->at < 0 || end->at < 0) return cudaErrorNotReady;
  *ms = (float)(1e3 * (end->at - start->at));
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t) { return "an error of CUDA"; }

// --- communicators -------------------------------------------------------------------------------

struct ncclComm {
  std::vector<int> members; // world ranks, in order
  int rank, context, next_context;
  bool threads;
};

static MPI_Comm world = MPI_COMM_NULL;

static void start_mpi()
{
  std::lock_guard<std::mutex> guard(lock);
  int on;
  MPI_Initialized(&on);
  if (!on) {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &on);
    atexit([] { MPI_Finalize(); });
  }
  if (world == MPI_COMM_NULL) world = MPI_COMM_WORLD;
}

static int tag(const ncclComm *comm, int from, int to, bool control)
{
  int pair = comm->threads ? comm->members[from] * 16 + comm->members[to] : 0;
  return ((comm->context * 256) + pair) * 2 + control;
}

static void receive(ncclComm *comm, int from, void *p, size_t bytes, bool control, MPI_Request *r)
{
  MPI_Irecv(p, (int)bytes, MPI_BYTE, comm->threads ? 0 : comm->members[from],
            tag(comm, from, comm->rank, control), world, r);
}

static void send(ncclComm *comm, int to, const void *p, size_t bytes, bool control, MPI_Request *r)
{
  MPI_Issend(p, (int)bytes, MPI_BYTE, comm->threads ? 0 : comm->members[to],
             tag(comm, comm->rank, to, control), world, r);
}

/* What every rank gives, in the order of the ranks. */
static std::vector<std::vector<char>> exchange(ncclComm *comm, const void *in, size_t bytes,
                                               bool control)
{
  int p = (int)comm->members.size();
  std::vector<std::vector<char>> all(p, std::vector<char>(bytes));
  std::vector<MPI_Request> requests;
  for (int i = 0; i < p; ++i) {
    if (i == comm->rank) {
      if (bytes) memcpy(all[i].data(), in, bytes);
      continue;
    }
    requests.resize(requests.size() + 2);
    receive(comm, i, all[i].data(), bytes, control, &requests[requests.size() - 2]);
    send(comm, i, in, bytes, control, &requests[requests.size() - 1]);
  }
  MPI_Waitall((int)requests.size(), requests.data(), MPI_STATUSES_IGNORE);
  return all;
}

/* Whether all ranks say the same. */
static void agree(ncclComm *comm, std::vector<uint64_t> said, bool control, const char *what)
{
  size_t bytes = said.size() * sizeof(uint64_t);
  for (auto &one : exchange(comm, said.data(), bytes, control))
    fake_require(memcmp(one.data(), said.data(), bytes) == 0, what);
}

static ncclComm *known(ncclComm_t comm)
{
  std::lock_guard<std::mutex> guard(lock);
  fake_require(live.count(comm), "no communicator");
  return comm;
}

static ncclComm *made(std::vector<int> members, int rank, int context, bool threads)
{
  std::lock_guard<std::mutex> guard(lock);
  auto comm = new ncclComm{std::move(members), rank, context, context + 1, threads};
  live.insert(comm);
  return comm;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
  memset(id, 7, sizeof *id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
  start_mpi();
  int p, mine;
  MPI_Comm_size(world, &p);
  MPI_Comm_rank(world, &mine);
  fake_require(id.internal[0] == 7 && id.internal[127] == 7, "an id that is none");
  fake_require(ranks == p && rank == mine, "other ranks than MPI's");
  std::vector<int> members(p);
  for (int i = 0; i < p; ++i) members[i] = i;
  *comm = made(members, rank, 1, false);
  return ncclSuccess;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int ranks, const int *)
{
  start_mpi();
  std::vector<int> members(ranks);
  for (int i = 0; i < ranks; ++i) members[i] = i;
  for (int i = 0; i < ranks; ++i) comms[i] = made(members, i, 1, true);
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *)
{
  known(comm);
  fake_require(color >= 0, "a negative colour");
  int said[3] = {color, key, comm->next_context};
  auto all = exchange(comm, said, sizeof said, true);
  std::vector<std::pair<int, int>> order; // key, rank in comm
  int context = 0;
  for (int i = 0; i < (int)all.size(); ++i) {
    int *one = (int *)all[i].data();
    context = std::max(context, one[2]);
    if (one[0] == color) order.push_back({one[1], i});
  }
  comm->next_context = context + 1;
  std::sort(order.begin(), order.end());
  std::vector<int> members;
  int rank = -1;
  for (auto &[k, i] : order) {
    if (i == comm->rank) rank = (int)members.size();
    members.push_back(comm->members[i]);
  }
  // Disjoint groups may share a context; the counter of the parent keeps the others apart.
  *out = made(members, rank, context, comm->threads);
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
  known(comm);
  std::lock_guard<std::mutex> guard(lock);
  for (auto window : windows) fake_require(window->comm != comm, "a window is left registered");
  live.erase(comm);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) { return ncclCommDestroy(comm); }

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
  if (!comm) return ncclInvalidArgument;
  return *count = (int)known(comm)->members.size(), ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
  return *rank = known(comm)->rank, ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *err)
{
  known(comm);
  *err = getenv("FAKE_ASYNC_ERROR") ? ncclRemoteError : ncclSuccess;
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t err)
{
  return err == ncclSuccess ? "no error" : "an error of NCCL";
}

// --- symmetric memory ----------------------------------------------------------------------------

ncclResult_t ncclMemAlloc(void **p, size_t bytes)
{
  cudaMalloc(p, bytes);
  std::lock_guard<std::mutex> guard(lock);
  registrable[(const char *)*p] = bytes;
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void *p)
{
  {
    std::lock_guard<std::mutex> guard(lock);
    fake_require(registrable.erase((const char *)p) == 1, "ncclMemFree of other memory");
    for (auto window : windows) fake_require(window->start != p, "freed what is registered");
  }
  forget(p);
  free(p);
  return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *p, size_t bytes, ncclWindow_t *window,
                                    int flags)
{
  known(comm);
  fake_require(flags == NCCL_WIN_COLL_SYMMETRIC, "flags of a window");
  fake_require(bytes > 0 && bytes % NCCL_WIN_REQUIRED_ALIGNMENT == 0, "the size of a window");
  agree(comm, {bytes}, true, "windows of different sizes");
  std::lock_guard<std::mutex> guard(lock);
  auto found = registrable.find((const char *)p);
  fake_require(found != registrable.end() && bytes <= found->second, "not from ncclMemAlloc");
  *window = new fake_window{comm, (char *)p, bytes};
  windows.insert(*window);
  return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
  known(comm);
  agree(comm, {window->bytes}, true, "windows go in different orders");
  std::lock_guard<std::mutex> guard(lock);
  fake_require(windows.erase(window) == 1 && window->comm == comm, "no window");
  delete window;
  return ncclSuccess;
}

// --- sending -------------------------------------------------------------------------------------

static size_t size_of(ncclDataType_t type)
{
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  fake_require(type >= 0 && type < 10, "a type");
  return sizes[type];
}

struct operation {
  bool sends, receives;
  char *p;
  size_t bytes;
  int peer;
  ncclComm *comm;
  std::function<void()> collective;
};

static thread_local int depth;
static thread_local std::vector<operation> group;
static thread_local cudaStream_t group_stream;

static void run(const std::vector<operation> &operations)
{
  std::vector<MPI_Request> requests;
  for (auto &one : operations) {
    if (one.collective) {
      one.collective();
      continue;
    }
    requests.emplace_back();
    if (one.sends) send(one.comm, one.peer, one.p, one.bytes, false, &requests.back());
    else receive(one.comm, one.peer, one.p, one.bytes, false, &requests.back());
  }
  std::vector<MPI_Status> statuses(requests.size());
  MPI_Waitall((int)requests.size(), requests.data(), statuses.data());
  size_t i = 0;
  for (auto &one : operations) {
    if (one.collective) continue;
    int got;
    MPI_Get_count(&statuses[i++], MPI_BYTE, &got);
    if (one.receives) fake_require((size_t)got == one.bytes, "a message of another size");
  }
}

static ncclResult_t put(operation one, cudaStream_t stream)
{
  if (depth) {
    fake_require(group.empty() || group_stream == stream, "one group on two streams");
    group_stream = stream;
    group.push_back(std::move(one));
  } else {
    fake_enqueue(stream, [one] { run({one}); });
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() { return ++depth, ncclSuccess; }

ncclResult_t ncclGroupEnd()
{
  fake_require(depth > 0, "no group");
  if (--depth || group.empty()) return ncclSuccess;
  fake_enqueue(group_stream, [all = std::move(group)] { run(all); });
  group.clear();
  return ncclSuccess;
}

static void check_peer(ncclComm *comm, int peer)
{
  fake_require(peer >= 0 && peer < (int)known(comm)->members.size(), "no such rank");
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
  check_peer(comm, peer);
  fake_on_device(in, count * size_of(type), "to send");
  return put({true, false, (char *)in, count * size_of(type), peer, comm, {}}, stream);
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
  check_peer(comm, peer);
  fake_on_device(out, count * size_of(type), "to receive in");
  return put({false, true, (char *)out, count * size_of(type), peer, comm, {}}, stream);
}

// --- reducing ------------------------------------------------------------------------------------

struct as_half {
  typedef __half T;
  static float load(T x) { return __half2float(x); }
  static T store(float x) { return __float2half_rn(x); }
};
struct as_bfloat {
  typedef __nv_bfloat16 T;
  static float load(T x) { return __bfloat162float(x); }
  static T store(float x) { return __float2bfloat16_rn(x); }
};
template <typename N, typename W> struct as_is {
  typedef N T;
  static W load(T x) { return (W)x; }
  static T store(W x) { return (T)x; }
};

template <typename A>
static void fold(const std::vector<std::vector<char>> &all, void *out, size_t start, size_t count,
                 ncclRedOp_t op)
{
  typedef typename A::T T;
  auto factor = A::load(A::store((decltype(A::load(T())))(1.0 / (double)all.size())));
  for (size_t i = 0; i < count; ++i) {
    T total{};
    for (size_t r = 0; r < all.size(); ++r) {
      T x;
      memcpy(&x, all[r].data() + (start + i) * sizeof(T), sizeof x);
      if (op == ncclAvg) x = A::store(A::load(x) * factor);
      if (r == 0) {
        total = x;
        continue;
      }
      auto a = A::load(total), b = A::load(x);
      // Integers are unsigned here, so that they wrap around; they compare as what they are.
      bool less = std::is_integral<T>::value ? total < x : a < b;
      if (op == ncclProd) total = A::store(a * b);
      else if (op == ncclMax) total = less ? x : total;
      else if (op == ncclMin) total = less ? total : x;
      else total = A::store(a + b);
    }
    memcpy((char *)out + i * sizeof(T), &total, sizeof(T));
  }
}

static bool operator<(__half, __half) { return false; }
static bool operator<(__nv_bfloat16, __nv_bfloat16) { return false; }

static void reduce(const std::vector<std::vector<char>> &all, void *out, size_t start, size_t count,
                   ncclDataType_t type, ncclRedOp_t op)
{
  switch (type) {
    case ncclInt8: return fold<as_is<int8_t, uint32_t>>(all, out, start, count, op);
    case ncclInt32: return fold<as_is<int32_t, uint32_t>>(all, out, start, count, op);
    case ncclInt64: return fold<as_is<int64_t, uint64_t>>(all, out, start, count, op);
    case ncclFloat16: return fold<as_half>(all, out, start, count, op);
    case ncclBfloat16: return fold<as_bfloat>(all, out, start, count, op);
    case ncclFloat32: return fold<as_is<float, float>>(all, out, start, count, op);
    case ncclFloat64: return fold<as_is<double, double>>(all, out, start, count, op);
    default: fake_require(false, "a type that is not emitted");
  }
}

/* A collective: checks its operands now, and does it in its turn. */
static ncclResult_t queue(const char *name, const void *in, size_t in_bytes, void *out,
                          size_t out_bytes, std::vector<uint64_t> said, ncclComm_t comm,
                          cudaStream_t stream, std::function<void()> work)
{
  known(comm);
  if (in_bytes) fake_on_device(in, in_bytes, name);
  if (out_bytes) fake_on_device(out, out_bytes, name);
  /* NCCL works in place where a block is the part of this rank of the buffer with all blocks. */
  bool in_place = out_bytes > in_bytes && in == (char *)out + (size_t)comm->rank * in_bytes;
  in_place |= in_bytes > out_bytes && out == (const char *)in + (size_t)comm->rank * out_bytes;
  fake_require(!in_bytes || !out_bytes || (const char *)in + in_bytes <= (char *)out ||
                   (char *)out + out_bytes <= (const char *)in || in_place,
               "operands overlap");
  said.push_back((uint64_t)name[4] << 8 | (uint64_t)name[7]);
  auto all = [=] {
    agree(comm, said, false, "ranks call different collectives");
    work();
  };
  return put({false, false, nullptr, 0, 0, comm, all}, stream);
}

static void check_op(ncclDataType_t type, ncclRedOp_t op)
{
  fake_require(op >= ncclSum && op <= ncclAvg, "a reduction");
  fake_require(op != ncclAvg || type >= ncclFloat16, "an average of integers");
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
  size_t bytes = count * size_of(type);
  check_op(type, op);
  return queue("ncclAllReduce", in, bytes, out, bytes, {count, (uint64_t)type, (uint64_t)op}, comm,
               stream, [=] { reduce(exchange(comm, in, bytes, false), out, 0, count, type, op); });
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
  size_t bytes = count * size_of(type);
  check_op(type, op);
  check_peer(comm, root);
  bool mine = comm->rank == root;
  return queue("ncclReduce", in, bytes, out, mine ? bytes : 0,
               {count, (uint64_t)type, (uint64_t)op, (uint64_t)root}, comm, stream, [=] {
                 auto all = exchange(comm, in, bytes, false);
                 if (mine) reduce(all, out, 0, count, type, op);
               });
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
  size_t bytes = count * size_of(type);
  check_peer(comm, root);
  bool mine = comm->rank == root;
  return queue("ncclBroadcast", in, mine ? bytes : 0, out, bytes,
               {count, (uint64_t)type, (uint64_t)root}, comm, stream, [=] {
                 std::vector<char> nothing(bytes);
                 auto all = exchange(comm, mine ? in : nothing.data(), bytes, false);
                 memcpy(out, all[root].data(), bytes);
               });
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
  size_t bytes = count * size_of(type);
  return queue("ncclAllGather", in, bytes, out, bytes * known(comm)->members.size(),
               {count, (uint64_t)type}, comm, stream, [=] {
                 auto all = exchange(comm, in, bytes, false);
                 for (size_t i = 0; i < all.size(); ++i)
                   memcpy((char *)out + i * bytes, all[i].data(), bytes);
               });
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
  size_t bytes = count * size_of(type) * known(comm)->members.size();
  check_op(type, op);
  return queue("ncclReduceScatter", in, bytes, out, count * size_of(type),
               {count, (uint64_t)type, (uint64_t)op}, comm, stream, [=] {
                 auto all = exchange(comm, in, bytes, false);
                 reduce(all, out, (size_t)comm->rank * count, count, type, op);
               });
}
