/* Program of tests: each cell becomes the sum of its neighbourhood, computed while halos are exchanged. As
 * overlapped_sums.py, with the same cases and files. */
#include <halo.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 2, MODULUS = 1000003, OUTSIDE = 5 };

static long computed; /* cells */

static void compute(const halo_domain *d, const long long *old, long long *new, halo_region region) {
    for (long i = region.low[0]; i < region.high[0]; i++)
        for (long j = region.low[1]; j < region.high[1]; j++)
            for (long k = region.low[2]; k < region.high[2]; k++) {
                long long sum = 0;
                computed++;
                for (long a = i - d->width[0]; a <= i + d->width[0]; a++)
                    for (long b = j - d->width[1]; b <= j + d->width[1]; b++)
                        for (long c = k - d->width[2]; c <= k + d->width[2]; c++) sum += old[halo_at(d, 0, a, b, c)];
                new[halo_at(d, 0, i, j, k)] = sum % MODULUS;
            }
}

static void run(const long *shape, const int *width, const int *periodic, int dimensions, const char *name) {
    halo_domain domain;
    halo_field field;
    halo_region rim[HALO_RIM], cells;
    if (halo_domain_init(&domain, MPI_COMM_WORLD, dimensions, shape, width, periodic, NULL) != MPI_SUCCESS) exit(3);
    size_t size = halo_size(&domain);
    long long *old = malloc(size * sizeof *old), *new = malloc(size * sizeof *new);
    for (size_t n = 0; n < size; n++) old[n] = new[n] = OUTSIDE;
    cells = halo_cells(&domain);
    for (long i = cells.low[0]; i < cells.high[0]; i++)
        for (long j = cells.low[1]; j < cells.high[1]; j++)
            for (long k = cells.low[2]; k < cells.high[2]; k++) {
                long row = (i - cells.low[0] + domain.start[0]) * domain.shape[1] + j - cells.low[1] + domain.start[1];
                old[halo_at(&domain, 0, i, j, k)] = row * domain.shape[2] + k - cells.low[2] + domain.start[2];
            }
    if (halo_field_init(&field, &domain, old, MPI_LONG_LONG, 1) != MPI_SUCCESS) exit(3);
    if (halo_finish(&field) != MPI_ERR_REQUEST) exit(4);
    for (int step = 0; step < STEPS; step++) {
        if (step) {
            long long *other = old;
            field.data = old = new;
            new = other;
        }
        computed = 0;
        halo_begin(&field);
        if (halo_begin(&field) != MPI_ERR_PENDING) exit(4);
        halo_progress(&field);
        compute(&domain, old, new, halo_interior(&domain));
        halo_finish(&field);
        for (int n = 0, strips = halo_rim(&domain, rim); n < strips; n++) compute(&domain, old, new, rim[n]);
        if (computed != domain.cells[0] * domain.cells[1] * domain.cells[2]) exit(6); /* strips overlap */
    }
    FILE *file = fopen(name, "wb");
    for (int n = 0; n < dimensions; n++) fwrite(&(long long){domain.grid[n]}, sizeof(long long), 1, file);
    fwrite(old, sizeof *old, size, file);
    for (long i = cells.low[0]; i < cells.high[0]; i++)
        for (long j = cells.low[1]; j < cells.high[1]; j++)
            fwrite(new + halo_at(&domain, 0, i, j, cells.low[2]), sizeof *new, (size_t)domain.cells[2], file);
    if (fclose(file)) exit(5);
    free(old);
    free(new);
    halo_field_free(&field);
    halo_domain_free(&domain);
}

int main(int argc, char **argv) {
    char line[256], name[512];
    MPI_Init(&argc, &argv);
    FILE *cases = fopen(argv[1], "r");
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int number = 0; fgets(line, sizeof line, cases); number++) {
        long numbers[9], shape[3];
        int width[3], periodic[3], dimensions, used, count = 0;
        for (char *at = line; count < 9 && sscanf(at, "%ld%n", &numbers[count], &used) == 1; at += used) count++;
        dimensions = count / 3;
        for (int d = 0; d < dimensions; d++) {
            shape[d] = numbers[d];
            width[d] = (int)numbers[dimensions + d];
            periodic[d] = (int)numbers[2 * dimensions + d];
        }
        snprintf(name, sizeof name, "%s/%d.%d", argv[2], number, rank);
        run(shape, width, periodic, dimensions, name);
    }
    fclose(cases);
    MPI_Finalize();
    return 0;
}
