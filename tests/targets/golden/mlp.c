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
 *   int  loss(struct m_mesh *mesh, const float *x, const float *z, const float *v, const float *w, float *mean);
 *   int  step(struct m_mesh *mesh, const float *x, const float *z, const float *v, const float *w, float *loss, float *new_v, float *new_w);
 */
#include <limits.h>
#include <math.h>
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

/* mesh @m on @box: 8 ranks, data = gpu:2, model = gpu:4. */
struct m_mesh {
  MPI_Comm comm;
  int rank;
  int data_gpu, model_gpu; /* this rank's coordinates */
  MPI_Comm over_model_gpu; /* ranks that differ in model.gpu only */
  MPI_Comm over_data_gpu; /* ranks that differ in data.gpu only */
  struct memory workspace; /* of the functions' temporaries */
};

void m_destroy(struct m_mesh *mesh)
{
  if (!mesh) return;
  if (mesh->over_model_gpu != MPI_COMM_NULL) MPI_Comm_free(&mesh->over_model_gpu);
  if (mesh->over_data_gpu != MPI_COMM_NULL) MPI_Comm_free(&mesh->over_data_gpu);
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
  mesh->over_model_gpu = MPI_COMM_NULL;
  mesh->over_data_gpu = MPI_COMM_NULL;
  mesh->comm = MPI_COMM_NULL;
  TRY(MPI_Comm_size(comm, &size));
  if (size != 8) TRY(wrong_size("mesh @m needs 8 ranks", size));
  TRY(MPI_Comm_dup(comm, &mesh->comm));
  TRY(MPI_Comm_set_errhandler(mesh->comm, MPI_ERRORS_RETURN));
  TRY(MPI_Comm_rank(mesh->comm, &mesh->rank));
  TRY(check_hosts(mesh->comm, 8,
                  "collir: mesh @m has 1 hosts of 8 ranks that follow\n"
                  "each other, but the ranks run elsewhere: launch them by\n"
                  "-ppn 8 (MPICH), --map-by ppr:8:node (Open MPI),\n"
                  "--ntasks-per-node=8 -m block (Slurm), or with -t hostfile or -t rankfile\n"));
  mesh->data_gpu = mesh->rank / 4;
  mesh->model_gpu = mesh->rank % 4;
  TRY(MPI_Comm_split(mesh->comm, mesh->data_gpu,
                     mesh->model_gpu, &mesh->over_model_gpu));
  TRY(MPI_Comm_set_errhandler(mesh->over_model_gpu, MPI_ERRORS_RETURN));
  TRY(MPI_Comm_split(mesh->comm, mesh->model_gpu,
                     mesh->data_gpu, &mesh->over_data_gpu));
  TRY(MPI_Comm_set_errhandler(mesh->over_data_gpu, MPI_ERRORS_RETURN));
done:
  if (err != MPI_SUCCESS) m_destroy(mesh);
  else *made = mesh;
  return err;
}

int m_create_f(MPI_Fint comm, struct m_mesh **made)
{
  return m_create(MPI_Comm_f2c(comm), made);
}

#ifdef COLLIR_CBLAS /* products of f32 and f64 by BLAS: link with it */
#include <cblas.h>
#endif

/* Matrices out = x y in f32: `rows` by `depth` times `depth` by `columns`. The strides are in
 * elements. A block of y is packed, and the sums of a block of the result are in float. */
static void product_f32(
    size_t rows, size_t columns, size_t depth, const float *restrict x, size_t x_row,
    size_t x_depth, const float *restrict y, size_t y_depth, size_t y_column,
    float *restrict out, size_t out_row, size_t out_column)
{
  enum { ROWS = 64, COLUMNS = 64, DEPTH = 64, RUN = 32 };
  float sums[ROWS][COLUMNS], block[DEPTH][COLUMNS];
#ifdef COLLIR_CBLAS
  if ((x_row == 1 || x_depth == 1) && (y_depth == 1 || y_column == 1) && out_column == 1 &&
      rows <= INT_MAX && columns <= INT_MAX && depth <= INT_MAX && x_row <= INT_MAX &&
      x_depth <= INT_MAX && y_depth <= INT_MAX && y_column <= INT_MAX && out_row <= INT_MAX) {
    cblas_sgemm(CblasRowMajor, x_depth == 1 ? CblasNoTrans : CblasTrans,
                y_column == 1 ? CblasNoTrans : CblasTrans, (int)rows, (int)columns, (int)depth,
                1, x, (int)(x_depth == 1 ? x_row : x_depth), y,
                (int)(y_column == 1 ? y_depth : y_column), 0, out, (int)out_row);
    return;
  }
#endif
  for (size_t row = 0; row < rows; row += ROWS)
    for (size_t column = 0; column < columns; column += COLUMNS) {
      size_t m = rows - row < ROWS ? rows - row : ROWS;
      size_t n = columns - column < COLUMNS ? columns - column : COLUMNS;
      memset(sums, 0, sizeof sums);
      for (size_t start = 0; start < depth; start += DEPTH) {
        size_t l = depth - start < DEPTH ? depth - start : DEPTH;
        memset(block, 0, sizeof block);
        for (size_t k = 0; k < l; ++k)
          for (size_t j = 0; j < n; ++j)
            block[k][j] = y[(start + k) * y_depth + (column + j) * y_column];
        for (size_t i = 0; i < m; ++i)
          for (size_t run = 0; run < n; run += RUN) {
            float *to = &sums[i][run];
            for (size_t k = 0; k < l; ++k) {
              float factor = x[(row + i) * x_row + (start + k) * x_depth];
              for (size_t j = 0; j < RUN; ++j) to[j] += factor * block[k][run + j];
            }
          }
      }
      for (size_t i = 0; i < m; ++i)
        for (size_t j = 0; j < n; ++j)
          out[(row + i) * out_row + (column + j) * out_column] = sums[i][j];
    }
}

/* einsum "b i, i j -> b j" x, y: x[2, 8], y[8, 2], out[2, 2] */
static void collir_einsum_1(const float *restrict x, const float *restrict y, float *restrict out)
{
  product_f32(2, 2, 8, x, 8, 1, y, 2, 1, out, 2, 1);
}

/* relu x: x[2, 2], out[2, 2] */
static void collir_relu_1(const float *restrict x, float *restrict out)
{
  for (size_t i = 0; i < 4; ++i) {
    float a = x[i];
    out[i] = a > 0 || a != a ? a : 0;
  }
}

/* einsum "b i, i j -> b j" x, y: x[2, 2], y[2, 8], out[2, 8] */
static void collir_einsum_2(const float *restrict x, const float *restrict y, float *restrict out)
{
  product_f32(2, 8, 2, x, 2, 1, y, 8, 1, out, 8, 1);
}

/* relu x: x[2, 8], out[2, 8] */
static void collir_relu_2(const float *restrict x, float *restrict out)
{
  for (size_t i = 0; i < 16; ++i) {
    float a = x[i];
    out[i] = a > 0 || a != a ? a : 0;
  }
}

/* sub x, y: x[2, 8], y[2, 8], out[2, 8] */
static void collir_sub_1(const float *restrict x, const float *restrict y, float *restrict out)
{
  for (size_t i = 0; i < 16; ++i) {
    float a = x[i];
    float b = y[i];
    out[i] = a - b;
  }
}

/* mul x, y: x[2, 8], y[2, 8], out[2, 8] */
static void collir_mul_1(const float *restrict x, const float *restrict y, float *restrict out)
{
  for (size_t i = 0; i < 16; ++i) {
    float a = x[i];
    float b = y[i];
    out[i] = a * b;
  }
}

/* sum x dims [0, 1]: x[2, 8], out[] */
static void collir_sum_1(const float *restrict x, float *restrict out)
{
  float sum = 0;
  for (size_t i0 = 0; i0 < 16; ++i0)
    sum += x[i0];
  out[0] = sum;
}

/* div x, y: x[], y[], out[] */
static void collir_div_1(const float *restrict x, const float *restrict y, float *restrict out)
{
  float a = x[0];
  float b = y[0];
  out[0] = a / b;
}

/* greater x, y: x[2, 8], y[], out[2, 8] */
static void collir_greater_1(const float *restrict x, const float *restrict y,
                             uint8_t *restrict out)
{
  for (size_t i = 0; i < 16; ++i) {
    float a = x[i];
    float b = y[0];
    out[i] = (uint8_t)(a > b);
  }
}

/* where x, y, z: x[2, 8], y[2, 8], z[], out[2, 8] */
static void collir_where_1(const uint8_t *restrict x, const float *restrict y,
                           const float *restrict z, float *restrict out)
{
  for (size_t i = 0; i < 16; ++i) {
    uint8_t a = x[i];
    float b = y[i];
    float c = z[0];
    out[i] = a ? b : c;
  }
}

/* einsum "b j, i j -> b i" x, y: x[2, 8], y[2, 8], out[2, 2] */
static void collir_einsum_3(const float *restrict x, const float *restrict y, float *restrict out)
{
  product_f32(2, 2, 8, x, 8, 1, y, 1, 8, out, 2, 1);
}

/* einsum "b j, b i -> i j" x, y: x[2, 8], y[2, 2], out[2, 8] */
static void collir_einsum_4(const float *restrict x, const float *restrict y, float *restrict out)
{
  product_f32(2, 8, 2, y, 1, 2, x, 8, 1, out, 8, 1);
}

/* greater x, y: x[2, 2], y[], out[2, 2] */
static void collir_greater_2(const float *restrict x, const float *restrict y,
                             uint8_t *restrict out)
{
  for (size_t i = 0; i < 4; ++i) {
    float a = x[i];
    float b = y[0];
    out[i] = (uint8_t)(a > b);
  }
}

/* where x, y, z: x[2, 2], y[2, 2], z[], out[2, 2] */
static void collir_where_2(const uint8_t *restrict x, const float *restrict y,
                           const float *restrict z, float *restrict out)
{
  for (size_t i = 0; i < 4; ++i) {
    uint8_t a = x[i];
    float b = y[i];
    float c = z[0];
    out[i] = a ? b : c;
  }
}

/* einsum "b j, i j -> b i" x, y: x[2, 2], y[8, 2], out[2, 8] */
static void collir_einsum_5(const float *restrict x, const float *restrict y, float *restrict out)
{
  product_f32(2, 8, 2, x, 2, 1, y, 1, 2, out, 8, 1);
}

/* einsum "b j, b i -> i j" x, y: x[2, 2], y[2, 8], out[8, 2] */
static void collir_einsum_6(const float *restrict x, const float *restrict y, float *restrict out)
{
  product_f32(8, 2, 2, y, 1, 8, x, 2, 1, out, 2, 1);
}

/* sub x, y: x[2, 8, 2], y[2, 8, 2], out[2, 8, 2] */
static void collir_sub_2(const float *restrict x, const float *restrict y, float *restrict out)
{
  for (size_t i = 0; i < 32; ++i) {
    float a = x[i];
    float b = y[i];
    out[i] = a - b;
  }
}

/* x[16] is f32[4@data, 8];
 * z[16] is f32[4@data, 8];
 * v[32] is f32[2, 8, 8@model];
 * w[32] is f32[2, 8@model, 8];
 * mean[1] is f32[]. */
int loss(struct m_mesh *mesh, const float *x, const float *z, const float *v, const float *w, float *mean)
{
  int err = MPI_SUCCESS;
  char *memory;
  TRY(reserve(&mesh->workspace, 256, &memory));
  float *y_spare = (float *)memory;
  float *y = (float *)(memory + 64);
  float *v1 = (float *)(memory + 128);
  float *v2 = (float *)(memory + 192);
  float *v3 = (float *)(memory + 128);
  float *v4 = (float *)(memory + 192);
  float *difference = (float *)memory;
  float *squares = (float *)(memory + 64);
  float *part_ = (float *)memory;
  float *total = (float *)(memory + 64);
  float *count = (float *)memory;
  // %y = repeat (layers / 2) carry(%h = %x) slice(%v_1 = %v, %w_1 = %w)
  {
    const float *h = x;
    float *v0 = y_spare;
    for (size_t turn = 0; turn < 2; ++turn) {
      // %0 = einsum "b i, i j -> b j" %h, %v
      collir_einsum_1(h, v + turn * 16, v1);
      // %1 = relu %0
      collir_relu_1(v1, v2);
      // %2 = einsum "b i, i j -> b j" %1, %w
      collir_einsum_2(v2, w + turn * 16, v3);
      // %3 = all_reduce %2 over model
      TRY(all_reduce(v3, v4, 16, MPI_FLOAT, MPI_SUM, mesh->over_model_gpu, NULL));
      // %4 = relu %3
      collir_relu_2(v4, v0);
      h = v0;
      v0 = v0 == y ? y_spare : y;
    }
  }
  // %difference = sub %y, %z
  collir_sub_1(y, z, difference);
  // %squares = mul %difference, %difference
  collir_mul_1(difference, difference, squares);
  // %part = sum %squares dims [0, 1]
  collir_sum_1(squares, part_);
  // %total = all_reduce %part over data
  TRY(all_reduce(part_, total, 1, MPI_FLOAT, MPI_SUM, mesh->over_data_gpu, NULL));
  // %count = constant value batch * width to f32[]
  count[0] = 32.0f;
  // %mean = div %total, %count
  collir_div_1(total, count, mean);
done:
  return err;
}

/* x[16] is f32[4@data, 8];
 * z[16] is f32[4@data, 8];
 * v[32] is f32[2, 8, 8@model];
 * w[32] is f32[2, 8@model, 8];
 * loss[1] is f32[];
 * new_v[32] is f32[2, 8, 8@model];
 * new_w[32] is f32[2, 8@model, 8]. */
int step(struct m_mesh *mesh, const float *x, const float *z, const float *v, const float *w, float *loss, float *new_v, float *new_w)
{
  int err = MPI_SUCCESS;
  char *memory;
  TRY(reserve(&mesh->workspace, 1088, &memory));
  float *v0 = (float *)memory;
  float *v1 = (float *)(memory + 128);
  float *v2 = (float *)(memory + 192);
  float *y_spare = (float *)(memory + 320);
  float *y = (float *)(memory + 384);
  float *v6 = (float *)(memory + 448);
  float *v7 = (float *)(memory + 448);
  float *v8 = (float *)(memory + 512);
  float *difference = (float *)(memory + 320);
  float *squares = (float *)(memory + 384);
  float *part_ = (float *)(memory + 448);
  float *total = (float *)(memory + 384);
  float *count = (float *)(memory + 448);
  float *v9 = (float *)(memory + 384);
  float *v10 = (float *)(memory + 512);
  float *v11 = (float *)(memory + 384);
  float *v12 = (float *)(memory + 448);
  float *v13 = (float *)(memory + 512);
  float *v14 = (float *)(memory + 320);
  float *d_w = (float *)(memory + 384);
  float *d_v = (float *)(memory + 512);
  float *v15 = (float *)(memory + 640);
  float *v16 = (float *)(memory + 704);
  float *v23 = (float *)(memory + 768);
  uint8_t *v24 = (uint8_t *)(memory + 832);
  float *v25 = (float *)(memory + 768);
  float *v26 = (float *)(memory + 896);
  float *v27 = (float *)(memory + 768);
  float *v28 = (float *)(memory + 832);
  float *v29 = (float *)(memory + 896);
  uint8_t *v30 = (uint8_t *)(memory + 960);
  float *v31 = (float *)(memory + 896);
  float *v32 = (float *)(memory + 1024);
  float *v33 = (float *)(memory + 768);
  float *v34 = (float *)(memory + 896);
  float *u_v = (float *)memory;
  float *u_w = (float *)(memory + 128);
  // %y, %0, %1, %2 = repeat (layers / 2) carry(%h = %x) slice(%v_1 = %v, %w_1 = %w)
  {
    const float *h = x;
    float *v3 = y_spare;
    for (size_t turn = 0; turn < 2; ++turn) {
      // %0 = einsum "b i, i j -> b j" %h, %v
      collir_einsum_1(h, v + turn * 16, v6);
      // %1 = relu %0
      collir_relu_1(v6, v1 + turn * 4);
      // %2 = einsum "b i, i j -> b j" %1, %w
      collir_einsum_2(v1 + turn * 4, w + turn * 16, v7);
      // %3 = all_reduce %2 over model
      TRY(all_reduce(v7, v8, 16, MPI_FLOAT, MPI_SUM, mesh->over_model_gpu, NULL));
      // %4 = relu %3
      collir_relu_2(v8, v3);
      memcpy(v2 + turn * 16, v3, 64);
      memcpy(v0 + turn * 16, h, 64);
      h = v3;
      v3 = v3 == y ? y_spare : y;
    }
  }
  // %difference = sub %y, %z
  collir_sub_1(y, z, difference);
  // %squares = mul %difference, %difference
  collir_mul_1(difference, difference, squares);
  // %part = sum %squares dims [0, 1]
  collir_sum_1(squares, part_);
  // %total = all_reduce %part over data
  TRY(all_reduce(part_, total, 1, MPI_FLOAT, MPI_SUM, mesh->over_data_gpu, NULL));
  // %count = constant value batch * width to f32[]
  count[0] = 32.0f;
  // %loss = div %total, %count
  collir_div_1(total, count, loss);
  // %3 = constant value 1 to f32[]
  v9[0] = 1.0f;
  // %4 = div %3, %count
  collir_div_1(v9, count, v10);
  // %6 = broadcast_to %5 to f32[batch@data, width]
  for (size_t i = 0; i < 16; ++i)
    v11[i] = v10[0];
  // %7 = mul %6, %difference
  collir_mul_1(v11, difference, v12);
  // %8 = mul %6, %difference
  collir_mul_1(v11, difference, v13);
  // %9 = add %7, %8
  for (size_t i = 0; i < 16; ++i) v14[i] = v12[i] + v13[i];
  // %10, %d_v, %d_w = repeat (layers / 2) carry(%16 = %9) slice(%17 = %0, %18 = %1, %h_1 = %2, %w_2 = %w, %v_2 = %v) reverse
  {
    const float *v17 = v14;
    float *v18 = v15;
    for (size_t turn = 0; turn < 2; ++turn) {
      // %3 = constant value 0 to f32[]
      v23[0] = 0;
      // %4 = greater %1, %3
      collir_greater_1(v2 + (1 - turn) * 16, v23, v24);
      // %5 = constant value 0 to f32[]
      v25[0] = 0;
      // %6 = where %4, %0, %5
      collir_where_1(v24, v17, v25, v26);
      // %7 = einsum "b j, i j -> b i" %6, %w
      collir_einsum_3(v26, w + (1 - turn) * 16, v27);
      // %8 = einsum "b j, b i -> i j" %6, %2
      collir_einsum_4(v26, v1 + (1 - turn) * 4, v28);
      // %9 = constant value 0 to f32[]
      v29[0] = 0;
      // %10 = greater %2, %9
      collir_greater_2(v1 + (1 - turn) * 4, v29, v30);
      // %11 = constant value 0 to f32[]
      v31[0] = 0;
      // %12 = where %10, %7, %11
      collir_where_2(v30, v27, v31, v32);
      // %13 = einsum "b j, i j -> b i" %12, %v
      collir_einsum_5(v32, v + (1 - turn) * 16, v33);
      // %14 = einsum "b j, b i -> i j" %12, %h
      collir_einsum_6(v32, v0 + (1 - turn) * 16, v34);
      // %15 = all_reduce %13 over model
      TRY(all_reduce(v33, v18, 16, MPI_FLOAT, MPI_SUM, mesh->over_model_gpu, NULL));
      // %16 = all_reduce %14 over data
      TRY(all_reduce(v34, d_v + (1 - turn) * 16, 16, MPI_FLOAT, MPI_SUM, mesh->over_data_gpu, NULL));
      // %17 = all_reduce %8 over data
      TRY(all_reduce(v28, d_w + (1 - turn) * 16, 16, MPI_FLOAT, MPI_SUM, mesh->over_data_gpu, NULL));
      v17 = v18;
      v18 = v18 == v16 ? v15 : v16;
    }
  }
  // %u_v = scale %d_v by 0.01
  for (size_t i = 0; i < 32; ++i) u_v[i] = d_v[i] * 0.009999999776482582f;
  // %u_w = scale %d_w by 0.01
  for (size_t i = 0; i < 32; ++i) u_w[i] = d_w[i] * 0.009999999776482582f;
  // %new_v = sub %v, %u_v
  collir_sub_2(v, u_v, new_v);
  // %new_w = sub %w, %u_w
  collir_sub_2(w, u_w, new_w);
done:
  return err;
}
