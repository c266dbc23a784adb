/* Written by collir VERSION: C99 and MPI 3.0.
 *
 * Every rank calls MESH_init(comm) once, then the functions with its own buffers, which must not
 * overlap, then MESH_finalize(). All return MPI_SUCCESS or an MPI error code, of which
 * MPI_Error_string has the text. Where a rank holds nothing of a value, its buffer is not touched
 * and may be NULL.
 *   int  m_init(MPI_Comm comm);
 *   void m_finalize(void);
 *   int  sync_gradients(const float *g, float *r);
 */
#include <limits.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most elements in one MPI call; larger buffers go in several. */
#ifndef COLLIR_MAX_COUNT
#define COLLIR_MAX_COUNT INT_MAX
#endif

/* For functions with a label `done` that releases what they hold and returns err. */
#define TRY(call) do { if ((err = (call)) != MPI_SUCCESS) goto done; } while (0)
#define NEW(p, bytes) \
  do { if (!((p) = malloc(bytes))) { err = MPI_ERR_NO_MEM; goto done; } } while (0)

/* An error of class MPI_ERR_COMM whose text says how many ranks are needed, and how many there are. */
static int wrong_size(const char *needs, int has) {
  char text[MPI_MAX_ERROR_STRING];
  int code;
  if (MPI_Add_error_code(MPI_ERR_COMM, &code) != MPI_SUCCESS) return MPI_ERR_COMM;
  snprintf(text, sizeof text, "%s, has %d", needs, has);
  return MPI_Add_error_string(code, text) == MPI_SUCCESS ? code : MPI_ERR_COMM;
}

static inline size_t least(size_t n) {
  return n < (size_t)COLLIR_MAX_COUNT ? n : (size_t)COLLIR_MAX_COUNT;
}

static inline size_t size_of(MPI_Datatype type) {
  int bytes;
  MPI_Type_size(type, &bytes);
  return (size_t)bytes;
}

/* `rows` pieces of `bytes` each, a stride apart in both arrays. */
static void copy_rows(void *to, size_t to_stride, const void *from, size_t from_stride,
                      size_t rows, size_t bytes) {
  for (size_t i = 0; i < rows; ++i)
    memcpy((char *)to + i * to_stride, (const char *)from + i * from_stride, bytes);
}

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

/* mesh @m on @cluster: 8 ranks, data = node:2 * gpu:4. */
static struct {
  MPI_Comm comm;
  int rank;
  int data_node, data_gpu; /* this rank's coordinates */
  MPI_Comm over_data_gpu; /* ranks that differ in data.gpu only */
  MPI_Comm over_data_node; /* ranks that differ in data.node only */
} mesh_m;

int m_init(MPI_Comm comm)
{
  int err = MPI_SUCCESS, size;
  TRY(MPI_Comm_size(comm, &size));
  if (size != 8) return wrong_size("mesh @m needs 8 ranks", size);
  TRY(MPI_Comm_dup(comm, &mesh_m.comm));
  TRY(MPI_Comm_set_errhandler(mesh_m.comm, MPI_ERRORS_RETURN));
  TRY(MPI_Comm_rank(mesh_m.comm, &mesh_m.rank));
  mesh_m.data_node = mesh_m.rank / 4;
  mesh_m.data_gpu = mesh_m.rank % 4;
  TRY(MPI_Comm_split(mesh_m.comm, mesh_m.data_node,
                     mesh_m.data_gpu, &mesh_m.over_data_gpu));
  TRY(MPI_Comm_set_errhandler(mesh_m.over_data_gpu, MPI_ERRORS_RETURN));
  TRY(MPI_Comm_split(mesh_m.comm, mesh_m.data_gpu,
                     mesh_m.data_node, &mesh_m.over_data_node));
  TRY(MPI_Comm_set_errhandler(mesh_m.over_data_node, MPI_ERRORS_RETURN));
done:
  return err;
}

void m_finalize(void)
{
  MPI_Comm_free(&mesh_m.over_data_gpu);
  MPI_Comm_free(&mesh_m.over_data_node);
  MPI_Comm_free(&mesh_m.comm);
}

/* g[1048576] is f32[1048576] partial(sum: data);
 * r[1048576] is f32[1048576]. */
int sync_gradients(const float *g, float *r)
{
  int err = MPI_SUCCESS;
  float *v0 = NULL;
  float *v1 = NULL;
  // %0 = reduce_scatter %g over data.gpu dim 0
  NEW(v0, 1048576);
  TRY(reduce_scatter(g, v0, 262144, MPI_FLOAT, MPI_SUM, mesh_m.over_data_gpu));
  // %1 = all_reduce %0 over data.node
  NEW(v1, 1048576);
  TRY(all_reduce(v0, v1, 262144, MPI_FLOAT, MPI_SUM, mesh_m.over_data_node));
  free(v0);
  v0 = NULL;
  // %r = all_gather %1 over data.gpu dim 0
  TRY(all_gather(v1, r, 262144, MPI_FLOAT, mesh_m.over_data_gpu));
  free(v1);
  v1 = NULL;
done:
  free(v0);
  free(v1);
  return err;
}
