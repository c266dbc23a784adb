/* Written by collir VERSION: C99 and MPI 3.0.
 *
 * All ranks of a communicator get a handle by MESH_create, call functions with it and with their
 * own buffers, which must not overlap, and give it back by MESH_destroy. A handle has communicators
 * and the memory of temporaries, so it is for one call at a time; there may be several handles. All
 * functions return MPI_SUCCESS or an MPI error code, of which MPI_Error_string has the text. Where
 * a rank holds nothing of a value, its buffer is not touched and may be NULL. MESH_create_f is for
 * Fortran.
 *   struct m_mesh;
 *   int  m_create(MPI_Comm comm, struct m_mesh **mesh);
 *   int  m_create_f(MPI_Fint comm, struct m_mesh **mesh);
 *   void m_destroy(struct m_mesh *mesh);
 *   int  sync_gradients(struct m_mesh *mesh, const float *g, float *r);
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

/* For functions with a label `done` behind which they return err. */
#define TRY(call) do { if ((err = (call)) != MPI_SUCCESS) goto done; } while (0)

/* An error of class MPI_ERR_COMM whose text says how many ranks are needed, and how many there are. */
static int wrong_size(const char *needs, int has) {
  char text[MPI_MAX_ERROR_STRING];
  int code;
  if (MPI_Add_error_code(MPI_ERR_COMM, &code) != MPI_SUCCESS) return MPI_ERR_COMM;
  snprintf(text, sizeof text, "%s, has %d", needs, has);
  return MPI_Add_error_string(code, text) == MPI_SUCCESS ? code : MPI_ERR_COMM;
}

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

static inline size_t least(size_t n) {
  return n < (size_t)COLLIR_MAX_COUNT ? n : (size_t)COLLIR_MAX_COUNT;
}

static inline size_t size_of(MPI_Datatype type) {
  int bytes;
  MPI_Type_size(type, &bytes);
  return (size_t)bytes;
}

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

/* The elements of the blocks before the q-th one: of n each, if there are no counts. */
static size_t blocks_before(const size_t *counts, int q, size_t n)
{
  size_t total = 0;
  if (!counts) return (size_t)q * n;
  for (int i = 0; i < q; ++i) total += counts[i];
  return total;
}

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

/* n elements from each rank. */
static int all_gather(const void *in, void *out, size_t n, MPI_Datatype type, MPI_Comm comm,
                      MPI_Request *request)
{
  if (n > COLLIR_MAX_COUNT) return exchange('g', -1, in, NULL, out, NULL, n, type, comm);
  return request ? MPI_Iallgather(in, (int)n, type, out, (int)n, type, comm, request)
                 : MPI_Allgather(in, (int)n, type, out, (int)n, type, comm);
}

/* mesh @m on @cluster: 8 ranks, data = node:2 * gpu:4. */
struct m_mesh {
  MPI_Comm comm;
  int rank;
  int data_node, data_gpu; /* this rank's coordinates */
  MPI_Comm over_data_gpu; /* ranks that differ in data.gpu only */
  MPI_Comm over_data_node; /* ranks that differ in data.node only */
  struct memory workspace; /* of the functions' temporaries */
};

void m_destroy(struct m_mesh *mesh)
{
  if (!mesh) return;
  if (mesh->over_data_gpu != MPI_COMM_NULL) MPI_Comm_free(&mesh->over_data_gpu);
  if (mesh->over_data_node != MPI_COMM_NULL) MPI_Comm_free(&mesh->over_data_node);
  if (mesh->comm != MPI_COMM_NULL) MPI_Comm_free(&mesh->comm);
  free(mesh->workspace.start);
  free(mesh);
}

int m_create(MPI_Comm comm, struct m_mesh **made)
{
  struct m_mesh *mesh = calloc(1, sizeof *mesh);
  int err = MPI_SUCCESS, size;
  *made = NULL;
  if (!mesh) return MPI_ERR_NO_MEM;
  mesh->over_data_gpu = MPI_COMM_NULL;
  mesh->over_data_node = MPI_COMM_NULL;
  mesh->comm = MPI_COMM_NULL;
  TRY(MPI_Comm_size(comm, &size));
  if (size != 8) TRY(wrong_size("mesh @m needs 8 ranks", size));
  TRY(MPI_Comm_dup(comm, &mesh->comm));
  TRY(MPI_Comm_set_errhandler(mesh->comm, MPI_ERRORS_RETURN));
  TRY(MPI_Comm_rank(mesh->comm, &mesh->rank));
  TRY(check_hosts(mesh->comm, 4,
                  "collir: mesh @m has 2 hosts of 4 ranks that follow\n"
                  "each other, but the ranks run elsewhere: launch them by\n"
                  "-ppn 4 (MPICH), --map-by ppr:4:node (Open MPI),\n"
                  "--ntasks-per-node=4 -m block (Slurm), or with -t hostfile or -t rankfile\n"));
  mesh->data_node = mesh->rank / 4;
  mesh->data_gpu = mesh->rank % 4;
  TRY(MPI_Comm_split(mesh->comm, mesh->data_node,
                     mesh->data_gpu, &mesh->over_data_gpu));
  TRY(MPI_Comm_set_errhandler(mesh->over_data_gpu, MPI_ERRORS_RETURN));
  TRY(MPI_Comm_split(mesh->comm, mesh->data_gpu,
                     mesh->data_node, &mesh->over_data_node));
  TRY(MPI_Comm_set_errhandler(mesh->over_data_node, MPI_ERRORS_RETURN));
done:
  if (err != MPI_SUCCESS) m_destroy(mesh);
  else *made = mesh;
  return err;
}

int m_create_f(MPI_Fint comm, struct m_mesh **made)
{
  return m_create(MPI_Comm_f2c(comm), made);
}

/* g[1048576] is f32[1048576] partial(sum: data);
 * r[1048576] is f32[1048576]. */
int sync_gradients(struct m_mesh *mesh, const float *g, float *r)
{
  int err = MPI_SUCCESS;
  char *memory;
  TRY(reserve(&mesh->workspace, 2097152, &memory));
  float *v0 = (float *)memory;
  float *v1 = (float *)(memory + 1048576);
  // %0 = reduce_scatter %g over data.gpu dim 0
  TRY(reduce_scatter(g, v0, 262144, MPI_FLOAT, MPI_SUM, mesh->over_data_gpu, NULL));
  // %1 = all_reduce %0 over data.node
  TRY(all_reduce(v0, v1, 262144, MPI_FLOAT, MPI_SUM, mesh->over_data_node, NULL));
  // %r = all_gather %1 over data.gpu dim 0
  TRY(all_gather(v1, r, 262144, MPI_FLOAT, mesh->over_data_gpu, NULL));
done:
  return err;
}
