/* The baseline of cartpole in C, without a C library; docs/exporting.md#webassembly has the command that builds it. */
#include "windtunnel_model.h"

static uint64_t scenario; /* the seed, for models that draw random numbers */

void *windtunnel_create(const char *description) {
    (void)description; /* this model is for one dataset only */
    return &scenario;
}

void windtunnel_reset(void *model, uint64_t seed) { *(uint64_t *)model = seed; }

int windtunnel_act(void *model, const double *observation, size_t n, double *action, size_t m) {
    (void)model;
    if (n != 4 || m != 1) return 1;
    double position = observation[0], velocity = observation[1], angle = observation[2], angular = observation[3];
    action[0] = angle + 0.5 * angular + 0.02 * position + 0.05 * velocity > 0 ? 1.0 : 0.0;
    return 0;
}

const char *windtunnel_error(void *model) {
    (void)model;
    return "the policy takes 4 numbers and gives 1";
}
