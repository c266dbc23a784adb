/* Written by collir VERSION: C99 and MPI 3.0.
 *
 * Every rank calls MESH_init(comm) once, then the functions with its own buffers, which must not
 * overlap, then MESH_finalize(). All return MPI_SUCCESS or an MPI error code, of which
 * MPI_Error_string has the text. Where a rank holds nothing of a value, its buffer is not touched
 * and may be NULL.
 *   int  m_init(MPI_Comm comm);
 *   void m_finalize(void);
 *   int  loss(const float *x, const float *z, const float *v, const float *w, float *mean);
 *   int  step(const float *x, const float *z, const float *v, const float *w, float *loss, float *new_v, float *new_w);
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

/* mesh @m on @box: 8 ranks, data = gpu:2, model = gpu:4. */
static struct {
  MPI_Comm comm;
  int rank;
  int data_gpu, model_gpu; /* this rank's coordinates */
  MPI_Comm over_data_gpu; /* ranks that differ in data.gpu only */
  MPI_Comm over_model_gpu; /* ranks that differ in model.gpu only */
} mesh_m;

int m_init(MPI_Comm comm)
{
  int err = MPI_SUCCESS, size;
  TRY(MPI_Comm_size(comm, &size));
  if (size != 8) return wrong_size("mesh @m needs 8 ranks", size);
  TRY(MPI_Comm_dup(comm, &mesh_m.comm));
  TRY(MPI_Comm_set_errhandler(mesh_m.comm, MPI_ERRORS_RETURN));
  TRY(MPI_Comm_rank(mesh_m.comm, &mesh_m.rank));
  mesh_m.data_gpu = mesh_m.rank / 4;
  mesh_m.model_gpu = mesh_m.rank % 4;
  TRY(MPI_Comm_split(mesh_m.comm, mesh_m.model_gpu,
                     mesh_m.data_gpu, &mesh_m.over_data_gpu));
  TRY(MPI_Comm_set_errhandler(mesh_m.over_data_gpu, MPI_ERRORS_RETURN));
  TRY(MPI_Comm_split(mesh_m.comm, mesh_m.data_gpu,
                     mesh_m.model_gpu, &mesh_m.over_model_gpu));
  TRY(MPI_Comm_set_errhandler(mesh_m.over_model_gpu, MPI_ERRORS_RETURN));
done:
  return err;
}

void m_finalize(void)
{
  MPI_Comm_free(&mesh_m.over_data_gpu);
  MPI_Comm_free(&mesh_m.over_model_gpu);
  MPI_Comm_free(&mesh_m.comm);
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

/* constant value batch * width to f32[]: out[] */
static void collir_constant_1(float *restrict out)
{
  out[0] = 32.0f;
}

/* div x, y: x[], y[], out[] */
static void collir_div_1(const float *restrict x, const float *restrict y, float *restrict out)
{
  float a = x[0];
  float b = y[0];
  out[0] = a / b;
}

/* constant value 1 to f32[]: out[] */
static void collir_constant_2(float *restrict out)
{
  out[0] = 1.0f;
}

/* broadcast_to x to f32[batch@data, width]: x[1, 1], out[2, 8] */
static void collir_broadcast_to_1(const float *restrict x, float *restrict out)
{
  for (size_t i = 0; i < 16; ++i) {
    float a = x[0];
    out[i] = a;
  }
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

/* constant value 0 to f32[]: out[] */
static void collir_constant_3(float *restrict out)
{
  out[0] = 0.0f;
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

static int loss_body(const float *h, const float *v, const float *w, float *v4);

static int step_body(const float *h, const float *v, const float *w, float *v4, float *out1, float *v1, float *out3);

static int step_body_2(const float *v0, const float *v1, const float *v2, const float *h, const float *w, const float *v, float *v15, float *v16, float *v17);

/* x[16] is f32[4@data, 8];
 * z[16] is f32[4@data, 8];
 * v[32] is f32[2, 8, 8@model];
 * w[32] is f32[2, 8@model, 8];
 * mean[1] is f32[]. */
int loss(const float *x, const float *z, const float *v, const float *w, float *mean)
{
  int err = MPI_SUCCESS;
  char *collir_memory = NULL;
  NEW(collir_memory, 128);
  float *y = (float *)(collir_memory + 0);
  float *y_spare = (float *)(collir_memory + 64);
  float *difference = (float *)(collir_memory + 64);
  float *squares = (float *)(collir_memory + 0);
  float *part = (float *)(collir_memory + 64);
  float *total = (float *)(collir_memory + 0);
  float *count = (float *)(collir_memory + 64);
  // %y = repeat (layers / 2) carry(%h = %x) slice(%v_1 = %v, %w_1 = %w)
  {
    const float *y_from = x;
    float *y_to = y_spare;
    for (size_t i = 0; i < 2; ++i) {
      TRY(loss_body(y_from, v + i * 16, w + i * 16, y_to));
      y_from = y_to;
      y_to = y_to == y ? y_spare : y;
    }
  }
  // %difference = sub %y, %z
  collir_sub_1(y, z, difference);
  // %squares = mul %difference, %difference
  collir_mul_1(difference, difference, squares);
  // %part = sum %squares dims [0, 1]
  collir_sum_1(squares, part);
  // %total = all_reduce %part over data
  TRY(all_reduce(part, total, 1, MPI_FLOAT, MPI_SUM, mesh_m.over_data_gpu));
  // %count = constant value batch * width to f32[]
  collir_constant_1(count);
  // %mean = div %total, %count
  collir_div_1(total, count, mean);
done:
  free(collir_memory);
  return err;
}

/* x[16] is f32[4@data, 8];
 * z[16] is f32[4@data, 8];
 * v[32] is f32[2, 8, 8@model];
 * w[32] is f32[2, 8@model, 8];
 * loss[1] is f32[];
 * new_v[32] is f32[2, 8, 8@model];
 * new_w[32] is f32[2, 8@model, 8]. */
int step(const float *x, const float *z, const float *v, const float *w, float *loss, float *new_v, float *new_w)
{
  int err = MPI_SUCCESS;
  char *collir_memory = NULL;
  NEW(collir_memory, 768);
  float *y = (float *)(collir_memory + 0);
  float *v0 = (float *)(collir_memory + 64);
  float *v1 = (float *)(collir_memory + 192);
  float *v2 = (float *)(collir_memory + 256);
  float *y_spare = (float *)(collir_memory + 384);
  float *difference = (float *)(collir_memory + 384);
  float *squares = (float *)(collir_memory + 0);
  float *part = (float *)(collir_memory + 448);
  float *total = (float *)(collir_memory + 0);
  float *count = (float *)(collir_memory + 448);
  float *v3 = (float *)(collir_memory + 0);
  float *v4 = (float *)(collir_memory + 512);
  float *v6 = (float *)(collir_memory + 0);
  float *v7 = (float *)(collir_memory + 448);
  float *v8 = (float *)(collir_memory + 512);
  float *v9 = (float *)(collir_memory + 0);
  float *v10 = (float *)(collir_memory + 384);
  float *d_v = (float *)(collir_memory + 448);
  float *d_w = (float *)(collir_memory + 576);
  float *v10_spare = (float *)(collir_memory + 704);
  float *u_v = (float *)(collir_memory + 0);
  float *u_w = (float *)(collir_memory + 448);
  // %y, %0, %1, %2 = repeat (layers / 2) carry(%h = %x) slice(%v_1 = %v, %w_1 = %w)
  {
    const float *y_from = x;
    float *y_to = y_spare;
    for (size_t i = 0; i < 2; ++i) {
      TRY(step_body(y_from, v + i * 16, w + i * 16, y_to, v0 + i * 16, v1 + i * 4, v2 + i * 16));
      y_from = y_to;
      y_to = y_to == y ? y_spare : y;
    }
  }
  // %difference = sub %y, %z
  collir_sub_1(y, z, difference);
  // %squares = mul %difference, %difference
  collir_mul_1(difference, difference, squares);
  // %part = sum %squares dims [0, 1]
  collir_sum_1(squares, part);
  // %total = all_reduce %part over data
  TRY(all_reduce(part, total, 1, MPI_FLOAT, MPI_SUM, mesh_m.over_data_gpu));
  // %count = constant value batch * width to f32[]
  collir_constant_1(count);
  // %loss = div %total, %count
  collir_div_1(total, count, loss);
  // %3 = constant value 1 to f32[]
  collir_constant_2(v3);
  // %4 = div %3, %count
  collir_div_1(v3, count, v4);
  // %6 = broadcast_to %5 to f32[batch@data, width]
  collir_broadcast_to_1(v4, v6);
  // %7 = mul %6, %difference
  collir_mul_1(v6, difference, v7);
  // %8 = mul %6, %difference
  collir_mul_1(v6, difference, v8);
  // %9 = add %7, %8
  for (size_t i = 0; i < 16; ++i) v9[i] = v7[i] + v8[i];
  // %10, %d_v, %d_w = repeat (layers / 2) carry(%16 = %9) slice(%17 = %0, %18 = %1, %h_1 = %2, %w_2 = %w, %v_2 = %v) reverse
  {
    const float *v10_from = v9;
    float *v10_to = v10_spare;
    for (size_t i = 0; i < 2; ++i) {
      TRY(step_body_2(v10_from, v0 + (1 - i) * 16, v1 + (1 - i) * 4, v2 + (1 - i) * 16, w + (1 - i) * 16, v + (1 - i) * 16, v10_to, d_v + (1 - i) * 16, d_w + (1 - i) * 16));
      v10_from = v10_to;
      v10_to = v10_to == v10 ? v10_spare : v10;
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
  free(collir_memory);
  return err;
}

/* h[16] is f32[4@data, 8];
 * v[16] is f32[8, 8@model];
 * w[16] is f32[8@model, 8];
 * v4[16] is f32[4@data, 8]. */
static int loss_body(const float *h, const float *v, const float *w, float *v4)
{
  int err = MPI_SUCCESS;
  char *collir_memory = NULL;
  NEW(collir_memory, 128);
  float *v0 = (float *)(collir_memory + 0);
  float *v1 = (float *)(collir_memory + 64);
  float *v2 = (float *)(collir_memory + 0);
  float *v3 = (float *)(collir_memory + 64);
  // %0 = einsum "b i, i j -> b j" %h, %v
  collir_einsum_1(h, v, v0);
  // %1 = relu %0
  collir_relu_1(v0, v1);
  // %2 = einsum "b i, i j -> b j" %1, %w
  collir_einsum_2(v1, w, v2);
  // %3 = all_reduce %2 over model
  TRY(all_reduce(v2, v3, 16, MPI_FLOAT, MPI_SUM, mesh_m.over_model_gpu));
  // %4 = relu %3
  collir_relu_2(v3, v4);
done:
  free(collir_memory);
  return err;
}

/* h[16] is f32[4@data, 8];
 * v[16] is f32[8, 8@model];
 * w[16] is f32[8@model, 8];
 * v4[16] is f32[4@data, 8];
 * out1[16] is f32[4@data, 8];
 * v1[4] is f32[4@data, 8@model];
 * out3[16] is f32[4@data, 8]. */
static int step_body(const float *h, const float *v, const float *w, float *v4, float *out1, float *v1, float *out3)
{
  int err = MPI_SUCCESS;
  char *collir_memory = NULL;
  NEW(collir_memory, 128);
  float *v0 = (float *)(collir_memory + 0);
  float *v2 = (float *)(collir_memory + 0);
  float *v3 = (float *)(collir_memory + 64);
  // %0 = einsum "b i, i j -> b j" %h, %v
  collir_einsum_1(h, v, v0);
  // %1 = relu %0
  collir_relu_1(v0, v1);
  // %2 = einsum "b i, i j -> b j" %1, %w
  collir_einsum_2(v1, w, v2);
  // %3 = all_reduce %2 over model
  TRY(all_reduce(v2, v3, 16, MPI_FLOAT, MPI_SUM, mesh_m.over_model_gpu));
  // %4 = relu %3
  collir_relu_2(v3, v4);
  memcpy(out1, v4, 64);
  memcpy(out3, h, 64);
done:
  free(collir_memory);
  return err;
}

/* v0[16] is f32[4@data, 8];
 * v1[16] is f32[4@data, 8];
 * v2[4] is f32[4@data, 8@model];
 * h[16] is f32[4@data, 8];
 * w[16] is f32[8@model, 8];
 * v[16] is f32[8, 8@model];
 * v15[16] is f32[4@data, 8];
 * v16[16] is f32[8, 8@model];
 * v17[16] is f32[8@model, 8]. */
static int step_body_2(const float *v0, const float *v1, const float *v2, const float *h, const float *w, const float *v, float *v15, float *v16, float *v17)
{
  int err = MPI_SUCCESS;
  char *collir_memory = NULL;
  NEW(collir_memory, 320);
  float *v3 = (float *)(collir_memory + 0);
  uint8_t *v4 = (uint8_t *)(collir_memory + 64);
  float *v5 = (float *)(collir_memory + 0);
  float *v6 = (float *)(collir_memory + 128);
  float *v7 = (float *)(collir_memory + 0);
  float *v8 = (float *)(collir_memory + 64);
  float *v9 = (float *)(collir_memory + 128);
  uint8_t *v10 = (uint8_t *)(collir_memory + 192);
  float *v11 = (float *)(collir_memory + 128);
  float *v12 = (float *)(collir_memory + 256);
  float *v13 = (float *)(collir_memory + 0);
  float *v14 = (float *)(collir_memory + 128);
  // %3 = constant value 0 to f32[]
  collir_constant_3(v3);
  // %4 = greater %1, %3
  collir_greater_1(v1, v3, v4);
  // %5 = constant value 0 to f32[]
  collir_constant_3(v5);
  // %6 = where %4, %0, %5
  collir_where_1(v4, v0, v5, v6);
  // %7 = einsum "b j, i j -> b i" %6, %w
  collir_einsum_3(v6, w, v7);
  // %8 = einsum "b j, b i -> i j" %6, %2
  collir_einsum_4(v6, v2, v8);
  // %9 = constant value 0 to f32[]
  collir_constant_3(v9);
  // %10 = greater %2, %9
  collir_greater_2(v2, v9, v10);
  // %11 = constant value 0 to f32[]
  collir_constant_3(v11);
  // %12 = where %10, %7, %11
  collir_where_2(v10, v7, v11, v12);
  // %13 = einsum "b j, i j -> b i" %12, %v
  collir_einsum_5(v12, v, v13);
  // %14 = einsum "b j, b i -> i j" %12, %h
  collir_einsum_6(v12, h, v14);
  // %15 = all_reduce %13 over model
  TRY(all_reduce(v13, v15, 16, MPI_FLOAT, MPI_SUM, mesh_m.over_model_gpu));
  // %16 = all_reduce %14 over data
  TRY(all_reduce(v14, v16, 16, MPI_FLOAT, MPI_SUM, mesh_m.over_data_gpu));
  // %17 = all_reduce %8 over data
  TRY(all_reduce(v8, v17, 16, MPI_FLOAT, MPI_SUM, mesh_m.over_data_gpu));
done:
  free(collir_memory);
  return err;
}
