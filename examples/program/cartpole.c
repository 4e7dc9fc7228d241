/* A policy for cartpole as a program: each line on standard input is answered by a line on standard output.
 *
 *     cc -O2 -static -o policy examples/program/cartpole.c
 *     curl -F model=@policy -F dataset=cartpole http://localhost:5000/v1/simulations
 */
#include <stdio.h>

int main(void) {
    static char line[1 << 16];
    double position, velocity, angle, angular_velocity;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "{\"act\":[%lf,%lf,%lf,%lf]}", &position, &velocity, &angle, &angular_velocity) == 4)
            printf("{\"action\":[%d]}\n", angle + 0.5 * angular_velocity > 0);
        else
            puts("{}"); /* to load and reset: nothing to prepare, nothing to forget */
        fflush(stdout);
    }
}
