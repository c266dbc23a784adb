// Gradient descent on every rank, with the gradients summed by what collir emitted.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "sync.h"

enum { WEIGHTS = 1048576, STEPS = 20 };

static void check(int err)
{
  char text[MPI_MAX_ERROR_STRING];
  int length;
  if (err == MPI_SUCCESS) return;
  MPI_Error_string(err, text, &length);
  fprintf(stderr, "%s\n", text);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
  MPI_Init(&argc, &argv);
  struct m_mesh *mesh;
  check(m_create(MPI_COMM_WORLD, &mesh));
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  float *weights = calloc(WEIGHTS, sizeof(float));
  float *mine = malloc(WEIGHTS * sizeof(float));
  float *sum = malloc(WEIGHTS * sizeof(float));
  if (!weights || !mine || !sum) check(MPI_ERR_NO_MEM);

  for (int step = 0; step < STEPS; ++step) {
    for (int i = 0; i < WEIGHTS; ++i) mine[i] = weights[i] - (float)rank;
    check(sync_gradients(mesh, mine, sum));
    for (int i = 0; i < WEIGHTS; ++i) weights[i] -= 0.5f * sum[i] / (float)ranks;
  }

  float least = weights[0], most = weights[0];
  for (int i = 1; i < WEIGHTS; ++i) {
    if (weights[i] < least) least = weights[i];
    if (weights[i] > most) most = weights[i];
  }
  MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_FLOAT, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0 && least == most)
    printf("after %d steps the weights are %.4f on all ranks\n", STEPS, least);
  free(weights);
  free(mine);
  free(sum);
  m_destroy(mesh);
  MPI_Finalize();
  return least == most ? 0 : 1;
}
