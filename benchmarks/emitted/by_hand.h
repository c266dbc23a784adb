/* The functions of by_hand.c. */
#pragma once
#include <mpi.h>
#include <stddef.h>

void hand_create(size_t bytes);
void hand_destroy(void);
int hand_pencil(const float *x, float *r);
int hand_sum(const float *x, float *r);
int hand_columns(const float *x, float *r);
int hand_halo(const float *x, float *r);
int hand_small(const float *x, float *r);
