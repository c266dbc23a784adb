// The runtime of the MPI target, in sections: `//: name needs other, another`.
// A program gets the sections it uses, in this order.

//: pieces
/* The most elements in one MPI call; larger buffers go in several. */
#ifndef COLLIR_MAX_COUNT
#define COLLIR_MAX_COUNT INT_MAX
#endif

//: check
/* For functions with a label `done` behind which they return err. */
#define TRY(call) do { if ((err = (call)) != MPI_SUCCESS) goto done; } while (0)

//: new
#define NEW(p, bytes) \
  do { if (!((p) = malloc(bytes))) { err = MPI_ERR_NO_MEM; goto done; } } while (0)

//: wrong_size
/* An error of class MPI_ERR_COMM whose text says how many ranks are needed, and how many there are. */
static int wrong_size(const char *needs, int has) {
  char text[MPI_MAX_ERROR_STRING];
  int code;
  if (MPI_Add_error_code(MPI_ERR_COMM, &code) != MPI_SUCCESS) return MPI_ERR_COMM;
  snprintf(text, sizeof text, "%s, has %d", needs, has);
  return MPI_Add_error_string(code, text) == MPI_SUCCESS ? code : MPI_ERR_COMM;
}

//: check_hosts
/* Warns if the ranks are on several hosts, and not each `slots` of them that follow on one. */
static int check_hosts(MPI_Comm comm, int slots, const char *warning)
{
  MPI_Comm host = MPI_COMM_NULL;
  int err, rank, ranks, place, near, first, wrong, anywhere = 0;
  TRY(MPI_Comm_rank(comm, &rank));
  TRY(MPI_Comm_size(comm, &ranks));
  TRY(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host));
  TRY(MPI_Comm_rank(host, &place));
  TRY(MPI_Comm_size(host, &near));
  first = rank;
  TRY(MPI_Bcast(&first, 1, MPI_INT, 0, host));
  wrong = near != ranks && (near != slots || first % slots || rank != first + place);
  TRY(MPI_Reduce(&wrong, &anywhere, 1, MPI_INT, MPI_MAX, 0, comm));
  if (anywhere) fputs(warning, stderr);
done:
  if (host != MPI_COMM_NULL) MPI_Comm_free(&host);
  return err;
}

//: is_size
/* Whether (plus - minus) / by is an integer from least. Nothing overflows if about, a bound of all
 * three, is below 2^63. */
static int is_size(size_t least, double about, size_t plus, size_t minus, size_t by)
{
  return about < 9.2e18 && plus >= minus && by > 0 && (plus - minus) % by == 0 &&
         (plus - minus) / by >= least;
}

//: check_size
/* An error of class MPI_ERR_ARG, with its text, unless sizes are as they must be. */
static int check_size(int holds, const char *problem)
{
  char text[MPI_MAX_ERROR_STRING];
  int code;
  if (holds) return MPI_SUCCESS;
  if (MPI_Add_error_code(MPI_ERR_ARG, &code) != MPI_SUCCESS) return MPI_ERR_ARG;
  snprintf(text, sizeof text, "%s", problem);
  return MPI_Add_error_string(code, text) == MPI_SUCCESS ? code : MPI_ERR_ARG;
}

//: compute_for needs check
/* Stands for a computation of so many seconds: put yours in its place. Meanwhile MPI goes on. */
static int compute_for(double seconds, MPI_Comm comm)
{
  double end = MPI_Wtime() + seconds;
  int err = MPI_SUCCESS, found;
  while (err == MPI_SUCCESS && MPI_Wtime() < end) {
    err = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &found, MPI_STATUS_IGNORE);
    sched_yield();
  }
  return err;
}

//: least needs pieces
static inline size_t least(size_t n) {
  return n < (size_t)COLLIR_MAX_COUNT ? n : (size_t)COLLIR_MAX_COUNT;
}

//: size_of
static inline size_t size_of(MPI_Datatype type) {
  int bytes;
  MPI_Type_size(type, &bytes);
  return (size_t)bytes;
}

//: reserve
/* Memory for what functions compute on the way. It is kept for later calls, and grows to what the
 * largest of them needs. */
struct memory {
  char *start;
  size_t bytes;
};
static int reserve(struct memory *kept, size_t bytes, char **start)
{
  if (bytes > kept->bytes) {
    free(kept->start);
    kept->start = malloc(bytes);
    kept->bytes = kept->start ? bytes : 0;
  }
  *start = kept->start;
  return *start ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

//: abandon needs reserve
/* After an error, memory is left to what is still under way in it. */
static void abandon(struct memory *kept)
{
  kept->start = NULL;
  kept->bytes = 0;
}

//: all_reduce needs least, size_of
/* Started if there is a request for it, as all others: without one, and where one call of MPI does
 * not take so many elements, it is waited for. */
static int all_reduce(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Op op,
                      MPI_Comm comm, MPI_Request *request)
{
  size_t size = size_of(type), c;
  int err = MPI_SUCCESS;
  int here = in == out;
  if (request && n <= COLLIR_MAX_COUNT)
    return MPI_Iallreduce(here ? MPI_IN_PLACE : in, out, (int)n, type, op, comm, request);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    c = least(n - i);
    err = MPI_Allreduce(here ? MPI_IN_PLACE : (const char *)in + i * size, (char *)out + i * size,
                        (int)c, type, op, comm);
  }
  return err;
}

//: reduce needs least, size_of
static int reduce(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Op op, int root,
                  MPI_Comm comm, MPI_Request *request)
{
  size_t size = size_of(type), c;
  int err = MPI_SUCCESS, rank;
  MPI_Comm_rank(comm, &rank);
  if (rank != root) out = NULL;
  if (request && n <= COLLIR_MAX_COUNT)
    return MPI_Ireduce(in, out, (int)n, type, op, root, comm, request);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    c = least(n - i);
    err = MPI_Reduce((const char *)in + i * size, out ? (char *)out + i * size : NULL, (int)c, type,
                     op, root, comm);
  }
  return err;
}

//: broadcast needs least, size_of
static int broadcast(const void *in, void *out, size_t n, MPI_Datatype type, int root,
                     MPI_Comm comm, MPI_Request *request)
{
  size_t size = size_of(type), c;
  int err = MPI_SUCCESS, rank;
  MPI_Comm_rank(comm, &rank);
  if (rank == root && in != out) memcpy(out, in, n * size);
  if (request && n <= COLLIR_MAX_COUNT) return MPI_Ibcast(out, (int)n, type, root, comm, request);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    c = least(n - i);
    err = MPI_Bcast((char *)out + i * size, (int)c, type, root, comm);
  }
  return err;
}

//: permute needs least, size_of
/* `leaving` elements go to rank `to`, and `coming` elements come from rank `from`; it takes two
 * requests. */
static int permute(const void *in, size_t leaving, int to, void *out, size_t coming, int from,
                   MPI_Datatype type, MPI_Comm comm, MPI_Request *requests)
{
  size_t size = size_of(type);
  int err = MPI_SUCCESS;
  if (requests && leaving <= COLLIR_MAX_COUNT && coming <= COLLIR_MAX_COUNT) {
    err = MPI_Irecv(out, (int)coming, type, from, 0, comm, requests);
    return err != MPI_SUCCESS ? err
                              : MPI_Isend(in, (int)leaving, type, to, 0, comm, requests + 1);
  }
  for (size_t i = 0; (i < leaving || i < coming) && err == MPI_SUCCESS; i += COLLIR_MAX_COUNT)
    err = MPI_Sendrecv((const char *)in + (i < leaving ? i : 0) * size,
                       i < leaving ? (int)least(leaving - i) : 0, type,
                       i < leaving ? to : MPI_PROC_NULL, 0,
                       (char *)out + (i < coming ? i : 0) * size,
                       i < coming ? (int)least(coming - i) : 0, type,
                       i < coming ? from : MPI_PROC_NULL, 0, comm, MPI_STATUS_IGNORE);
  return err;
}

//: shift needs permute
/* n elements go to rank `to`, and n come from rank `from`; where none come, zeros do. */
static int shift(const void *in, int to, void *out, int from, size_t n, MPI_Datatype type,
                 MPI_Comm comm, MPI_Request *requests)
{
  if (from == MPI_PROC_NULL) memset(out, 0, n * size_of(type));
  return permute(in, n, to, out, n, from, type, comm, requests);
}

//: send needs least, size_of
/* n elements from one rank to another. */
static int send_to(const void *in, size_t n, MPI_Datatype type, int to, MPI_Comm comm,
                   MPI_Request *request)
{
  size_t size = size_of(type), c;
  int err = MPI_SUCCESS;
  if (request && n <= COLLIR_MAX_COUNT) return MPI_Isend(in, (int)n, type, to, 0, comm, request);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    c = least(n - i);
    err = MPI_Send((const char *)in + i * size, (int)c, type, to, 0, comm);
  }
  return err;
}
static int receive_from(void *out, size_t n, MPI_Datatype type, int from, MPI_Comm comm,
                        MPI_Request *request)
{
  size_t size = size_of(type), c;
  int err = MPI_SUCCESS;
  if (request && n <= COLLIR_MAX_COUNT) return MPI_Irecv(out, (int)n, type, from, 0, comm, request);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    c = least(n - i);
    err = MPI_Recv((char *)out + i * size, (int)c, type, from, 0, comm, MPI_STATUS_IGNORE);
  }
  return err;
}

//: block
/* The elements of the blocks before the q-th one: of n each, if there are no counts. */
static size_t blocks_before(const size_t *counts, int q, size_t n)
{
  size_t total = 0;
  if (!counts) return (size_t)q * n;
  for (int i = 0; i < q; ++i) total += counts[i];
  return total;
}

//: exchange needs permute, block
/* Blocks that are too large for one call of MPI, pair by pair of ranks: gathered ('g'), scattered
 * ('s'), or from each to each ('a'); at the root only, if that is not negative. */
static int exchange(char way, int root, const void *in, const size_t *leaving, void *out,
                    const size_t *coming, size_t n, MPI_Datatype type, MPI_Comm comm)
{
  size_t size = size_of(type);
  int err = MPI_SUCCESS, p, rank;
  MPI_Comm_size(comm, &p);
  MPI_Comm_rank(comm, &rank);
  for (int step = 0; step < p && err == MPI_SUCCESS; ++step) {
    int to = (rank + step) % p, from = (rank + p - step) % p;
    int sends = root < 0 || (way == 'g' ? to == root : rank == root);
    int receives = root < 0 || (way == 'g' ? rank == root : from == root);
    const size_t *out_of = way == 'g' ? coming : leaving, *into = way == 's' ? leaving : coming;
    int block = way == 'g' ? rank : to, place = way == 's' ? rank : from;
    size_t start = way == 'g' ? 0 : blocks_before(leaving, to, n);
    size_t end = way == 's' ? 0 : blocks_before(coming, from, n);
    err = permute(sends ? (const char *)in + start * size : NULL,
                  !sends ? 0 : out_of ? out_of[block] : n, to,
                  receives ? (char *)out + end * size : NULL,
                  !receives ? 0 : into ? into[place] : n, from, type, comm, NULL);
  }
  return err;
}

//: reduce_scatter needs reduce
/* n elements for each rank. */
static int reduce_scatter(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm, MPI_Request *request)
{
  int err = MPI_SUCCESS, p;
  if (n <= COLLIR_MAX_COUNT)
    return request ? MPI_Ireduce_scatter_block(in, out, (int)n, type, op, comm, request)
                   : MPI_Reduce_scatter_block(in, out, (int)n, type, op, comm);
  MPI_Comm_size(comm, &p);
  for (int q = 0; q < p && err == MPI_SUCCESS; ++q)
    err = reduce((const char *)in + (size_t)q * n * size_of(type), out, n, type, op, q, comm, NULL);
  return err;
}

//: all_gather needs exchange
/* n elements from each rank. */
static int all_gather(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Comm comm,
                      MPI_Request *request)
{
  if (n > COLLIR_MAX_COUNT) return exchange('g', -1, in, NULL, out, NULL, n, type, comm);
  return request ? MPI_Iallgather(in, (int)n, type, out, (int)n, type, comm, request)
                 : MPI_Allgather(in, (int)n, type, out, (int)n, type, comm);
}

//: gather needs exchange
/* n elements from each rank. */
static int gather(const void *in, void *out, size_t n, MPI_Datatype type, int root, MPI_Comm comm,
                  MPI_Request *request)
{
  int rank;
  MPI_Comm_rank(comm, &rank);
  if (rank != root) out = NULL;
  if (n > COLLIR_MAX_COUNT) return exchange('g', root, in, NULL, out, NULL, n, type, comm);
  return request ? MPI_Igather(in, (int)n, type, out, (int)n, type, root, comm, request)
                 : MPI_Gather(in, (int)n, type, out, (int)n, type, root, comm);
}

//: scatter needs exchange
/* n elements for each rank. */
static int scatter(const void *in, void *out, size_t n, MPI_Datatype type, int root, MPI_Comm comm,
                   MPI_Request *request)
{
  int rank;
  MPI_Comm_rank(comm, &rank);
  if (rank != root) in = NULL;
  if (n > COLLIR_MAX_COUNT) return exchange('s', root, in, NULL, out, NULL, n, type, comm);
  return request ? MPI_Iscatter(in, (int)n, type, out, (int)n, type, root, comm, request)
                 : MPI_Scatter(in, (int)n, type, out, (int)n, type, root, comm);
}

//: all_to_all needs exchange
/* n elements for and from each rank. */
static int all_to_all(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Comm comm,
                      MPI_Request *request)
{
  if (n > COLLIR_MAX_COUNT) return exchange('a', -1, in, NULL, out, NULL, n, type, comm);
  return request ? MPI_Ialltoall(in, (int)n, type, out, (int)n, type, comm, request)
                 : MPI_Alltoall(in, (int)n, type, out, (int)n, type, comm);
}

//: as_integers needs block
/* The counts of blocks as MPI takes them, with their starts behind them. */
static void as_integers(const size_t *counts, int p, int *integers)
{
  for (int q = 0; q < p; ++q) {
    integers[q] = (int)counts[q];
    integers[p + q] = (int)blocks_before(counts, q, 0);
  }
}

//: all_gather_blocks needs exchange, as_integers
/* coming[r] elements from rank r. */
static int all_gather_blocks(const void *in, void *out, const size_t *coming, MPI_Datatype type,
                             int *integers, MPI_Comm comm, MPI_Request *request)
{
  int p, rank;
  MPI_Comm_size(comm, &p);
  MPI_Comm_rank(comm, &rank);
  if (blocks_before(coming, p, 0) > COLLIR_MAX_COUNT)
    return exchange('g', -1, in, NULL, out, coming, 0, type, comm);
  as_integers(coming, p, integers);
  return request ? MPI_Iallgatherv(in, integers[rank], type, out, integers, integers + p, type,
                                   comm, request)
                 : MPI_Allgatherv(in, integers[rank], type, out, integers, integers + p, type, comm);
}

//: gather_blocks needs exchange, as_integers
/* coming[r] elements from rank r. */
static int gather_blocks(const void *in, void *out, const size_t *coming, MPI_Datatype type,
                         int root, int *integers, MPI_Comm comm, MPI_Request *request)
{
  int p, rank;
  MPI_Comm_size(comm, &p);
  MPI_Comm_rank(comm, &rank);
  if (rank != root) out = NULL;
  if (blocks_before(coming, p, 0) > COLLIR_MAX_COUNT)
    return exchange('g', root, in, NULL, out, coming, 0, type, comm);
  as_integers(coming, p, integers);
  return request ? MPI_Igatherv(in, integers[rank], type, out, integers, integers + p, type, root,
                                comm, request)
                 : MPI_Gatherv(in, integers[rank], type, out, integers, integers + p, type, root,
                               comm);
}

//: scatter_blocks needs exchange, as_integers
/* leaving[r] elements for rank r. */
static int scatter_blocks(const void *in, void *out, const size_t *leaving, MPI_Datatype type,
                          int root, int *integers, MPI_Comm comm, MPI_Request *request)
{
  int p, rank;
  MPI_Comm_size(comm, &p);
  MPI_Comm_rank(comm, &rank);
  if (rank != root) in = NULL;
  if (blocks_before(leaving, p, 0) > COLLIR_MAX_COUNT)
    return exchange('s', root, in, leaving, out, NULL, 0, type, comm);
  as_integers(leaving, p, integers);
  return request ? MPI_Iscatterv(in, integers, integers + p, type, out, integers[rank], type, root,
                                 comm, request)
                 : MPI_Scatterv(in, integers, integers + p, type, out, integers[rank], type, root,
                                comm);
}

//: reduce_scatter_blocks needs reduce, as_integers
/* leaving[r] elements for rank r. */
static int reduce_scatter_blocks(const void *in, void *out, const size_t *leaving,
                                 MPI_Datatype type, MPI_Op op, int *integers, MPI_Comm comm,
                                 MPI_Request *request)
{
  int err = MPI_SUCCESS, p;
  MPI_Comm_size(comm, &p);
  if (blocks_before(leaving, p, 0) <= COLLIR_MAX_COUNT) {
    as_integers(leaving, p, integers);
    return request ? MPI_Ireduce_scatter(in, out, integers, type, op, comm, request)
                   : MPI_Reduce_scatter(in, out, integers, type, op, comm);
  }
  for (int q = 0; q < p && err == MPI_SUCCESS; ++q)
    err = reduce((const char *)in + blocks_before(leaving, q, 0) * size_of(type), out, leaving[q],
                 type, op, q, comm, NULL);
  return err;
}

//: all_to_all_blocks needs exchange, as_integers
/* leaving[r] elements for rank r, and coming[r] from it; `most` are those of the rank of the group
 * that has most. */
static int all_to_all_blocks(const void *in, void *out, const size_t *leaving, const size_t *coming,
                             size_t most, MPI_Datatype type, int *integers, MPI_Comm comm,
                             MPI_Request *request)
{
  int p, *back = integers;
  MPI_Comm_size(comm, &p);
  if (most > COLLIR_MAX_COUNT) return exchange('a', -1, in, leaving, out, coming, 0, type, comm);
  back += 2 * p;
  as_integers(leaving, p, integers);
  as_integers(coming, p, back);
  return request ? MPI_Ialltoallv(in, integers, integers + p, type, out, back, back + p, type, comm,
                                  request)
                 : MPI_Alltoallv(in, integers, integers + p, type, out, back, back + p, type, comm);
}

//: bf16
/* bfloat16 as its bits: the upper half of a float, rounded to nearest even. */
static inline float bf16_load(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float x;
  memcpy(&x, &wide, sizeof x);
  return x;
}
static inline uint16_t bf16_store(float x) {
  uint32_t wide;
  memcpy(&wide, &x, sizeof wide);
  if (x != x) return (uint16_t)(wide >> 16 | 0x40);
  return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

//: f16
/* IEEE half precision as its bits, rounded to nearest even. */
static inline float f16_load(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31;
  uint32_t mantissa = bits & 0x3ff, wide;
  float x;
  if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24 */
    x = (float)mantissa * 0x1p-24f;
    return sign ? -x : x;
  }
  wide = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | mantissa << 13;
  memcpy(&x, &wide, sizeof x);
  return x;
}
static inline uint16_t f16_store(float x) {
  uint32_t wide, sign, rest;
  memcpy(&wide, &x, sizeof wide);
  sign = wide >> 16 & 0x8000;
  wide &= 0x7fffffff;
  if (wide > 0x7f800000) return (uint16_t)(sign | 0x7e00);          /* not a number */
  if (wide >= 0x477ff000) return (uint16_t)(sign | 0x7c00);         /* rounds to infinity */
  if (wide < 0x38800000) {                                          /* subnormal */
    uint32_t shift = 126 - (wide >> 23);
    if (shift > 24) return (uint16_t)sign;
    wide = (wide & 0x7fffff) | 0x800000;
    rest = wide & ((1u << shift) - 1);
    wide >>= shift;
    return (uint16_t)(sign | (wide + (rest > 1u << (shift - 1) ||
                                      (rest == 1u << (shift - 1) && (wide & 1)))));
  }
  return (uint16_t)(sign | ((wide - 0x38000000 + 0xfff + (wide >> 13 & 1)) >> 13));
}

//: f16_of_double needs f16
/* Rounded to odd in between, or rounding twice could end on the wrong side. */
static inline uint16_t f16_of_double(double x) {
  float near = (float)x;
  uint32_t bits;
  memcpy(&bits, &near, sizeof bits);
  if ((double)near != x && !(bits & 1)) bits += (x < 0 ? near < x : near > x) ? -1u : 1u;
  memcpy(&near, &bits, sizeof near);
  return f16_store(near);
}

//: mixed_bits
/* 32 bits of which each depends on all bits of x: the last step of MurmurHash3. */
static inline uint32_t mixed_bits(uint32_t x)
{
  x = (x ^ x >> 16) * 0x85EBCA6Bu;
  x = (x ^ x >> 13) * 0xC2B2AE35u;
  return x ^ x >> 16;
}

//: larger
/* Whether x is before y in descending order; what is not a number is before all others. */
static inline int larger(double x, double y)
{
  return x > y || (x != x && y == y);
}

//: larger_integer
static inline int larger_integer(int64_t x, int64_t y)
{
  return x > y;
}
