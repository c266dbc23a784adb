// The runtime of the MPI target, in sections: `//: name needs other, another`.
// A program gets the sections it uses, in this order.

//: pieces
/* The most elements in one MPI call; larger buffers go in several. */
#ifndef COLLIR_MAX_COUNT
#define COLLIR_MAX_COUNT INT_MAX
#endif

//: check
/* For functions with a label `done` that releases what they hold and returns err. */
#define TRY(call) do { if ((err = (call)) != MPI_SUCCESS) goto done; } while (0)
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

//: copy_rows
/* `rows` pieces of `bytes` each, a stride apart in both arrays. */
static void copy_rows(void *to, size_t to_stride, const void *from, size_t from_stride,
                      size_t rows, size_t bytes) {
  for (size_t i = 0; i < rows; ++i)
    memcpy((char *)to + i * to_stride, (const char *)from + i * from_stride, bytes);
}

//: swap_blocks
/* [a][b] blocks of `bytes` each become [b][a]. */
static void swap_blocks(void *to, const void *from, size_t a, size_t b, size_t bytes) {
  for (size_t i = 0; i < a; ++i)
    for (size_t j = 0; j < b; ++j)
      memcpy((char *)to + (j * a + i) * bytes, (const char *)from + (i * b + j) * bytes, bytes);
}

//: strided needs pieces
/* `count` elements as one, `stride` elements from the next such piece. */
static int strided(MPI_Datatype type, size_t count, size_t stride, size_t bytes,
                   MPI_Datatype *piece) {
  MPI_Datatype run;
  int err = MPI_Type_contiguous((int)count, type, &run);
  if (err != MPI_SUCCESS) return err;
  err = MPI_Type_create_resized(run, 0, (MPI_Aint)(stride * bytes), piece);
  MPI_Type_free(&run);
  return err != MPI_SUCCESS ? err : MPI_Type_commit(piece);
}

//: all_reduce needs least, size_of
static int all_reduce(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Op op,
                      MPI_Comm comm) {
  size_t size = size_of(type), c;
  int err = MPI_SUCCESS;
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    c = least(n - i);
    err = MPI_Allreduce((const char *)in + i * size, (char *)out + i * size, (int)c, type, op, comm);
  }
  return err;
}

//: reduce needs least, size_of
static int reduce(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  size_t size = size_of(type), c;
  int err = MPI_SUCCESS, rank;
  MPI_Comm_rank(comm, &rank);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    c = least(n - i);
    err = MPI_Reduce((const char *)in + i * size, rank ? NULL : (char *)out + i * size, (int)c,
                     type, op, 0, comm);
  }
  return err;
}

//: broadcast needs least, size_of
static int broadcast(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Comm comm) {
  size_t size = size_of(type), c;
  int err = MPI_SUCCESS, rank;
  MPI_Comm_rank(comm, &rank);
  if (rank == 0) memcpy(out, in, n * size);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    c = least(n - i);
    err = MPI_Bcast((char *)out + i * size, (int)c, type, 0, comm);
  }
  return err;
}

//: broadcast_from needs least, size_of
/* From rank `root`. */
static int broadcast_from(const void *in, int root, void *out, size_t n, MPI_Datatype type,
                          MPI_Comm comm) {
  size_t size = size_of(type), c;
  int err = MPI_SUCCESS, rank;
  MPI_Comm_rank(comm, &rank);
  if (rank == root) memcpy(out, in, n * size);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    c = least(n - i);
    err = MPI_Bcast((char *)out + i * size, (int)c, type, root, comm);
  }
  return err;
}

//: reduce_scatter needs least, size_of, copy_rows
/* n elements for each rank; a buffer in pieces is packed, as reductions take no strided types. */
static int reduce_scatter(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm) {
  size_t size = size_of(type), c = least(n);
  int err = MPI_SUCCESS, p;
  MPI_Comm_size(comm, &p);
  if (c == n) return MPI_Reduce_scatter_block(in, out, (int)n, type, op, comm);
  char *packed = malloc((size_t)p * c * size);
  if (!packed) return MPI_ERR_NO_MEM;
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    c = least(n - i);
    copy_rows(packed, c * size, (const char *)in + i * size, n * size, (size_t)p, c * size);
    err = MPI_Reduce_scatter_block(packed, (char *)out + i * size, (int)c, type, op, comm);
  }
  free(packed);
  return err;
}

//: all_gather needs least, size_of, strided
/* n elements from each rank. */
static int all_gather(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Comm comm) {
  size_t size = size_of(type), c = least(n);
  int err = MPI_SUCCESS;
  if (c == n) return MPI_Allgather(in, (int)n, type, out, (int)n, type, comm);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    MPI_Datatype piece;
    c = least(n - i);
    if ((err = strided(type, c, n, size, &piece)) != MPI_SUCCESS) break;
    err = MPI_Allgather((const char *)in + i * size, (int)c, type, (char *)out + i * size, 1, piece,
                        comm);
    MPI_Type_free(&piece);
  }
  return err;
}

//: gather needs least, size_of, strided
/* n elements from each rank. */
static int gather(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Comm comm) {
  size_t size = size_of(type), c = least(n);
  int err = MPI_SUCCESS, rank;
  MPI_Comm_rank(comm, &rank);
  if (c == n) return MPI_Gather(in, (int)n, type, rank ? NULL : out, (int)n, type, 0, comm);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    MPI_Datatype piece;
    c = least(n - i);
    if ((err = strided(type, c, n, size, &piece)) != MPI_SUCCESS) break;
    err = MPI_Gather((const char *)in + i * size, (int)c, type,
                     rank ? NULL : (char *)out + i * size, 1, piece, 0, comm);
    MPI_Type_free(&piece);
  }
  return err;
}

//: scatter needs least, size_of, strided
/* n elements for each rank. */
static int scatter(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Comm comm) {
  size_t size = size_of(type), c = least(n);
  int err = MPI_SUCCESS, rank;
  MPI_Comm_rank(comm, &rank);
  if (c == n) return MPI_Scatter(rank ? NULL : in, (int)n, type, out, (int)n, type, 0, comm);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    MPI_Datatype piece;
    c = least(n - i);
    if ((err = strided(type, c, n, size, &piece)) != MPI_SUCCESS) break;
    err = MPI_Scatter(rank ? NULL : (const char *)in + i * size, 1, piece, (char *)out + i * size,
                      (int)c, type, 0, comm);
    MPI_Type_free(&piece);
  }
  return err;
}

//: scatter_from needs least, size_of, strided
/* n elements for each rank, from rank `root`. */
static int scatter_from(const void *in, int root, void *out, size_t n, MPI_Datatype type,
                        MPI_Comm comm) {
  size_t size = size_of(type), c = least(n);
  int err = MPI_SUCCESS, rank;
  MPI_Comm_rank(comm, &rank);
  if (c == n)
    return MPI_Scatter(rank == root ? in : NULL, (int)n, type, out, (int)n, type, root, comm);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    MPI_Datatype piece;
    c = least(n - i);
    if ((err = strided(type, c, n, size, &piece)) != MPI_SUCCESS) break;
    err = MPI_Scatter(rank == root ? (const char *)in + i * size : NULL, 1, piece,
                      (char *)out + i * size, (int)c, type, root, comm);
    MPI_Type_free(&piece);
  }
  return err;
}

//: all_to_all needs least, size_of, strided
/* n elements for and from each rank. */
static int all_to_all(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Comm comm) {
  size_t size = size_of(type), c = least(n);
  int err = MPI_SUCCESS;
  if (c == n) return MPI_Alltoall(in, (int)n, type, out, (int)n, type, comm);
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    MPI_Datatype piece;
    c = least(n - i);
    if ((err = strided(type, c, n, size, &piece)) != MPI_SUCCESS) break;
    err = MPI_Alltoall((const char *)in + i * size, 1, piece, (char *)out + i * size, 1, piece,
                       comm);
    MPI_Type_free(&piece);
  }
  return err;
}

//: reduce_scatter_rows needs reduce_scatter, swap_blocks
/* Every rank's n elements lie in `rows` pieces, between those of the others. */
static int reduce_scatter_rows(const void *in, void *out, size_t n, size_t rows,
                               MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  size_t size = size_of(type);
  int err, p;
  MPI_Comm_size(comm, &p);
  char *packed = malloc((size_t)p * n * size);
  if (!packed) return MPI_ERR_NO_MEM;
  swap_blocks(packed, in, rows, (size_t)p, n / rows * size);
  err = reduce_scatter(packed, out, n, type, op, comm);
  free(packed);
  return err;
}

//: all_gather_rows needs all_gather, swap_blocks
/* Every rank's n elements lie in `rows` pieces, between those of the others. */
static int all_gather_rows(const void *in, void *out, size_t n, size_t rows, MPI_Datatype type,
                           MPI_Comm comm) {
  size_t size = size_of(type);
  int err, p;
  MPI_Comm_size(comm, &p);
  char *packed = malloc((size_t)p * n * size);
  if (!packed) return MPI_ERR_NO_MEM;
  err = all_gather(in, packed, n, type, comm);
  if (err == MPI_SUCCESS) swap_blocks(out, packed, (size_t)p, rows, n / rows * size);
  free(packed);
  return err;
}

//: gather_rows needs gather, swap_blocks
/* Every rank's n elements lie in `rows` pieces, between those of the others. */
static int gather_rows(const void *in, void *out, size_t n, size_t rows, MPI_Datatype type,
                       MPI_Comm comm) {
  size_t size = size_of(type);
  int err, p, rank;
  char *packed = NULL;
  MPI_Comm_size(comm, &p);
  MPI_Comm_rank(comm, &rank);
  if (rank == 0 && !(packed = malloc((size_t)p * n * size))) return MPI_ERR_NO_MEM;
  err = gather(in, packed, n, type, comm);
  if (rank == 0 && err == MPI_SUCCESS)
    swap_blocks(out, packed, (size_t)p, rows, n / rows * size);
  free(packed);
  return err;
}

//: scatter_rows needs scatter, swap_blocks
/* Every rank's n elements lie in `rows` pieces, between those of the others. */
static int scatter_rows(const void *in, void *out, size_t n, size_t rows, MPI_Datatype type,
                        MPI_Comm comm) {
  size_t size = size_of(type);
  int err, p, rank;
  char *packed = NULL;
  MPI_Comm_size(comm, &p);
  MPI_Comm_rank(comm, &rank);
  if (rank == 0) {
    if (!(packed = malloc((size_t)p * n * size))) return MPI_ERR_NO_MEM;
    swap_blocks(packed, in, rows, (size_t)p, n / rows * size);
  }
  err = scatter(packed, out, n, type, comm);
  free(packed);
  return err;
}

//: scatter_rows_from needs scatter_from, swap_blocks
/* Every rank's n elements lie in `rows` pieces, between those of the others, on rank `root`. */
static int scatter_rows_from(const void *in, int root, void *out, size_t n, size_t rows,
                             MPI_Datatype type, MPI_Comm comm) {
  size_t size = size_of(type);
  int err, p, rank;
  char *packed = NULL;
  MPI_Comm_size(comm, &p);
  MPI_Comm_rank(comm, &rank);
  if (rank == root) {
    if (!(packed = malloc((size_t)p * n * size))) return MPI_ERR_NO_MEM;
    swap_blocks(packed, in, rows, (size_t)p, n / rows * size);
  }
  err = scatter_from(packed, root, out, n, type, comm);
  free(packed);
  return err;
}

//: all_to_all_rows needs all_to_all, swap_blocks
/* Blocks of n elements lie in `rows_out` pieces where they leave, in `rows_in` where they come. */
static int all_to_all_rows(const void *in, void *out, size_t n, size_t rows_out, size_t rows_in,
                           MPI_Datatype type, MPI_Comm comm) {
  size_t size = size_of(type);
  int err = MPI_ERR_NO_MEM, p;
  MPI_Comm_size(comm, &p);
  char *leaving = malloc((size_t)p * n * size), *coming = malloc((size_t)p * n * size);
  if (leaving && coming) {
    swap_blocks(leaving, in, rows_out, (size_t)p, n / rows_out * size);
    err = all_to_all(leaving, coming, n, type, comm);
    if (err == MPI_SUCCESS) swap_blocks(out, coming, (size_t)p, rows_in, n / rows_in * size);
  }
  free(leaving);
  free(coming);
  return err;
}

//: permute needs least, size_of
/* `leaving` elements go to rank `to`, and `coming` elements come from rank `from`. */
static int permute(const void *in, size_t leaving, int to, void *out, size_t coming, int from,
                   MPI_Datatype type, MPI_Comm comm) {
  size_t size = size_of(type);
  int err = MPI_SUCCESS;
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
                 MPI_Comm comm) {
  if (from == MPI_PROC_NULL) memset(out, 0, n * size_of(type));
  return permute(in, n, to, out, n, from, type, comm);
}

//: send needs least, size_of
/* n elements from one rank to another. */
static int send_to(const void *in, size_t n, MPI_Datatype type, int to, MPI_Comm comm) {
  size_t size = size_of(type), c;
  int err = MPI_SUCCESS;
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    c = least(n - i);
    err = MPI_Send((const char *)in + i * size, (int)c, type, to, 0, comm);
  }
  return err;
}
static int receive_from(void *out, size_t n, MPI_Datatype type, int from, MPI_Comm comm) {
  size_t size = size_of(type), c;
  int err = MPI_SUCCESS;
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    c = least(n - i);
    err = MPI_Recv((char *)out + i * size, (int)c, type, from, 0, comm, MPI_STATUS_IGNORE);
  }
  return err;
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

//: units_before
/* The sum of the first `count` parts. */
static inline size_t units_before(const int *parts, int count) {
  size_t total = 0;
  for (int i = 0; i < count; ++i) total += (size_t)parts[i];
  return total;
}

//: unit_columns needs pieces
/* `count` of each n elements in `rows` rows as one, and n elements from the next such column. */
static int unit_columns(MPI_Datatype type, size_t count, size_t n, size_t rows, size_t row, size_t bytes,
                   MPI_Datatype *column) {
  MPI_Datatype run, all;
  int err = rows <= INT_MAX ? MPI_Type_contiguous((int)count, type, &run) : MPI_ERR_COUNT;
  if (err != MPI_SUCCESS) return err;
  err = MPI_Type_create_hvector((int)rows, 1, (MPI_Aint)(row * bytes), run, &all);
  MPI_Type_free(&run);
  if (err != MPI_SUCCESS) return err;
  err = MPI_Type_create_resized(all, 0, (MPI_Aint)(n * bytes), column);
  MPI_Type_free(&all);
  return err != MPI_SUCCESS ? err : MPI_Type_commit(column);
}

//: block_starts needs units_before
/* The parts of the ranks before each rank; NULL if there is no memory. */
static int *block_starts(const int *parts, int p) {
  int *starts = malloc((size_t)p * sizeof *starts);
  for (int i = 0; starts && i < p; ++i) starts[i] = (int)units_before(parts, i);
  return starts;
}

//: move_units needs least, size_of, unit_columns, block_starts
/* parts[r] columns of rank r, each with n elements in every row: to all ranks ('a'), to rank 0
 * ('g'), or from rank 0 ('s'). */
static int move_units(char way, const void *in, void *out, const int *parts, size_t n, size_t rows,
                      MPI_Datatype type, MPI_Comm comm) {
  size_t size = size_of(type), c;
  int err = MPI_SUCCESS, p, rank;
  MPI_Comm_size(comm, &p);
  MPI_Comm_rank(comm, &rank);
  int *starts = block_starts(parts, p);
  if (!starts) return MPI_ERR_NO_MEM;
  for (size_t i = 0; i < n && err == MPI_SUCCESS; i += c) {
    MPI_Datatype own, all;
    c = least(n - i);
    if ((err = unit_columns(type, c, n, rows, (size_t)parts[rank] * n, size, &own)) != MPI_SUCCESS) break;
    if ((err = unit_columns(type, c, n, rows, units_before(parts, p) * n, size, &all)) == MPI_SUCCESS) {
      const char *from = way != 's' || rank == 0 ? (const char *)in + i * size : NULL;
      char *to = way != 'g' || rank == 0 ? (char *)out + i * size : NULL;
      err = way == 'a'   ? MPI_Allgatherv(from, parts[rank], own, to, parts, starts, all, comm)
            : way == 'g' ? MPI_Gatherv(from, parts[rank], own, to, parts, starts, all, 0, comm)
                         : MPI_Scatterv(from, parts, starts, all, to, parts[rank], own, 0, comm);
      MPI_Type_free(&all);
    }
    MPI_Type_free(&own);
  }
  free(starts);
  return err;
}
//: all_gather_blocks needs move_units
static int all_gather_blocks(const void *in, void *out, const int *parts, size_t n, size_t rows,
                             MPI_Datatype type, MPI_Comm comm) {
  return move_units('a', in, out, parts, n, rows, type, comm);
}
//: gather_blocks needs move_units
static int gather_blocks(const void *in, void *out, const int *parts, size_t n, size_t rows,
                         MPI_Datatype type, MPI_Comm comm) {
  return move_units('g', in, out, parts, n, rows, type, comm);
}
//: scatter_blocks needs move_units
static int scatter_blocks(const void *in, void *out, const int *parts, size_t n, size_t rows,
                          MPI_Datatype type, MPI_Comm comm) {
  return move_units('s', in, out, parts, n, rows, type, comm);
}

//: reduce_scatter_blocks needs least, size_of, copy_rows, units_before
/* parts[r] columns for rank r, each with n elements in every row. They are packed rank by rank, as
 * reductions take no strided types; large blocks are reduced in several pieces. */
static int reduce_scatter_blocks(const void *in, void *out, const int *parts, size_t n, size_t rows,
                                 MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  size_t size = size_of(type), whole, column = n * size, most = 0, c;
  int err = MPI_ERR_NO_MEM, p, rank;
  MPI_Comm_size(comm, &p);
  MPI_Comm_rank(comm, &rank);
  whole = units_before(parts, p);
  char *packed = malloc(whole * rows * column), *piece = malloc(whole * rows * column);
  int *counts = malloc((size_t)p * sizeof *counts);
  if (packed && piece && counts) {
    err = MPI_SUCCESS;
    for (int r = 0; r < p; ++r) {
      size_t own = (size_t)parts[r], start = units_before(parts, r);
      copy_rows(packed + start * rows * column, own * column, (const char *)in + start * column,
                whole * column, rows, own * column);
      if (own * rows * n > most) most = own * rows * n;
    }
    c = least(whole * rows * n) == whole * rows * n ? most : least(whole * rows * n) / (size_t)p;
    if (c == 0) c = 1;
    for (size_t i = 0; i < most && err == MPI_SUCCESS; i += c) {
      size_t filled = 0;
      for (int r = 0; r < p; ++r) {
        size_t block = (size_t)parts[r] * rows * n, left = block > i ? block - i : 0;
        counts[r] = (int)(left < c ? left : c);
        memcpy(piece + filled * size, packed + (units_before(parts, r) * rows * n + i) * size * (left > 0),
               (size_t)counts[r] * size);
        filled += (size_t)counts[r];
      }
      err = MPI_Reduce_scatter(piece, (char *)out + i * size * (counts[rank] > 0), counts, type, op,
                               comm);
    }
  }
  free(packed);
  free(piece);
  free(counts);
  return err;
}

//: all_to_all_blocks needs least, size_of, copy_rows, units_before
/* leaving[q] columns for rank q with n_out elements in each of rows_out rows; coming[q] from it. The
 * blocks are packed; if they are too many for one call, pairs of ranks exchange them in pieces. */
static int all_to_all_blocks(const void *in, void *out, const int *leaving, size_t n_out,
                             size_t rows_out, const int *coming, size_t n_in, size_t rows_in,
                             MPI_Datatype type, MPI_Comm comm) {
  size_t size = size_of(type), out_row, in_row;
  size_t leaves = n_out * rows_out, comes = n_in * rows_in;
  int err = MPI_ERR_NO_MEM, p, rank;
  MPI_Comm_size(comm, &p);
  MPI_Comm_rank(comm, &rank);
  out_row = units_before(leaving, p) * n_out;
  in_row = units_before(coming, p) * n_in;
  char *sent = malloc(out_row * rows_out * size), *got = malloc(in_row * rows_in * size);
  int *counts = malloc(4 * (size_t)p * sizeof *counts);
  if (sent && got && counts) {
    err = MPI_SUCCESS;
    for (int q = 0; q < p; ++q) {
      size_t start = units_before(leaving, q), wide = (size_t)leaving[q] * n_out;
      copy_rows(sent + start * leaves * size, wide * size,
                (const char *)in + start * n_out * size, out_row * size, rows_out, wide * size);
    }
    int *starts = counts + p;
    if (out_row * rows_out <= COLLIR_MAX_COUNT && in_row * rows_in <= COLLIR_MAX_COUNT) {
      for (int q = 0; q < p; ++q) {
        counts[q] = (int)((size_t)leaving[q] * leaves);
        starts[q] = (int)(units_before(leaving, q) * leaves);
        counts[2 * p + q] = (int)((size_t)coming[q] * comes);
        starts[2 * p + q] = (int)(units_before(coming, q) * comes);
      }
      err = MPI_Alltoallv(sent, counts, starts, type, got, counts + 2 * p, starts + 2 * p, type,
                          comm);
    } else {
      for (int step = 0; step < p && err == MPI_SUCCESS; ++step) {
        int to = (rank + step) % p, from = (rank + p - step) % p;
        size_t send = (size_t)leaving[to] * leaves, receive = (size_t)coming[from] * comes;
        const char *first = sent + units_before(leaving, to) * leaves * size;
        char *last = got + units_before(coming, from) * comes * size;
        for (size_t i = 0; (i < send || i < receive) && err == MPI_SUCCESS; i += COLLIR_MAX_COUNT)
          err = MPI_Sendrecv(first + (i < send ? i : 0) * size, i < send ? (int)least(send - i) : 0,
                             type, i < send ? to : MPI_PROC_NULL, 0,
                             last + (i < receive ? i : 0) * size,
                             i < receive ? (int)least(receive - i) : 0, type,
                             i < receive ? from : MPI_PROC_NULL, 0, comm, MPI_STATUS_IGNORE);
      }
    }
    for (int q = 0; err == MPI_SUCCESS && q < p; ++q) {
      size_t start = units_before(coming, q), wide = (size_t)coming[q] * n_in;
      copy_rows((char *)out + start * n_in * size, in_row * size, got + start * comes * size,
                wide * size, rows_in, wide * size);
    }
  }
  free(sent);
  free(got);
  free(counts);
  return err;
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
