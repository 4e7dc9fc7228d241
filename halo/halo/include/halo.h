/* halo.h: domain decomposition with overlap for MPI programs in C99; blocks and exchange as in the Python package.
 *
 *     halo_domain domain;
 *     halo_domain_init(&domain, MPI_COMM_WORLD, 2, (long[]){1000, 1000}, (int[]){1, 1}, (int[]){1, 0}, NULL);
 *     double *u = calloc(halo_size(&domain), sizeof *u);
 *     halo_field field;
 *     halo_field_init(&field, &domain, u, MPI_DOUBLE, 1);
 *     halo_begin(&field);
 *     compute(halo_interior(&domain));
 *     halo_finish(&field);
 *     halo_region rim[HALO_RIM];
 *     for (int i = 0, strips = halo_rim(&domain, rim); i < strips; i++) compute(rim[i]);
 *     halo_field_free(&field);
 *     halo_domain_free(&domain);
 *
 * A rank's array is padded: its own cells, and `width` cells around them in each dimension. It is in C order,
 * components first: element (c, i, j, k) is at halo_at(&domain, c, i, j, k), with i = width[0] for the first own cell.
 * At an edge of a grid that is not periodic the halo is there too, and belongs to the program.
 *
 * Functions that return int return MPI_SUCCESS or an error class of MPI; a communicator's error handler, by default
 * MPI_ERRORS_ARE_FATAL, is for errors of MPI itself.
 */
#ifndef WINDTUNNEL_HALO_H
#define WINDTUNNEL_HALO_H

#include <mpi.h>
#include <stddef.h>
#include <string.h>

enum {
    HALO_DIMENSIONS = 3,
    HALO_DIRECTIONS = 27, /* with that of the block itself, which is number 13 */
    HALO_RIM = 2 * HALO_DIMENSIONS
};

/* Cells of a padded array: from low to before high. A dimension that the grid lacks has one cell. */
typedef struct {
    long low[HALO_DIMENSIONS], high[HALO_DIMENSIONS];
} halo_region;

/* A grid of cells on the ranks of a communicator, and the block of this rank: `cells` from `start` on. */
typedef struct {
    MPI_Comm communicator;
    int rank, dimensions;
    int grid[HALO_DIMENSIONS], place[HALO_DIMENSIONS], width[HALO_DIMENSIONS], periodic[HALO_DIMENSIONS];
    long shape[HALO_DIMENSIONS], start[HALO_DIMENSIONS], cells[HALO_DIMENSIONS], padded[HALO_DIMENSIONS];
    int neighbour[HALO_DIRECTIONS]; /* MPI_PROC_NULL: no message */
} halo_domain;

/* An array on a domain. `data` may be exchanged for another array of the same shape while no exchange is under way. */
typedef struct {
    const halo_domain *domain;
    void *data;
    size_t size; /* bytes of an element */
    int components;
    MPI_Datatype sent[HALO_DIRECTIONS], received[HALO_DIRECTIONS]; /* MPI_DATATYPE_NULL: no message */
    MPI_Request requests[2 * HALO_DIRECTIONS];
    int pending; /* number of requests; -1: no exchange is under way */
} halo_field;

/* First cell of a part of `cells` that are divided among `ranks`: the first parts have one more. */
static inline long halo_bound(long cells, int ranks, int part) {
    long more = cells % ranks;
    return part * (cells / ranks) + (part < more ? part : more);
}

/* Direction number 0 to 26: -1, 0 or 1 in each dimension; the opposite of number n is 26 - n. */
static inline void halo_direction(int number, int side[HALO_DIMENSIONS]) {
    for (int d = HALO_DIMENSIONS - 1; d >= 0; d--, number /= 3) side[d] = number % 3 - 1;
}

/* Rank with which messages are exchanged in a direction; never this rank itself. */
static inline int halo_neighbour(const halo_domain *domain, int number) {
    int side[HALO_DIMENSIONS], rank = 0, moved = 0;
    halo_direction(number, side);
    for (int d = 0; d < HALO_DIMENSIONS; d++) {
        int ranks = domain->grid[d], there = domain->place[d] + side[d];
        int outside = !domain->periodic[d] && (there < 0 || there >= ranks);
        if (side[d] && (outside || ranks == 1 || domain->width[d] == 0)) return MPI_PROC_NULL;
        rank = rank * ranks + (there + ranks) % ranks;
        moved |= side[d];
    }
    return moved ? rank : MPI_PROC_NULL;
}

/* Divide a grid of 1 to 3 dimensions among the ranks of a communicator; called by all ranks together.
 *
 * grid: ranks by dimension, with 0 where MPI_Dims_create shall choose; NULL: in all. Returns MPI_ERR_DIMS if the grid
 * does not have as many ranks as the communicator, and MPI_ERR_ARG if a block has no cells or fewer than its halo. */
static inline int halo_domain_init(halo_domain *domain, MPI_Comm communicator, int dimensions, const long *shape,
                                   const int *width, const int *periodic, const int *grid) {
    int ranks, rest, error, free_dimensions = 0, product = 1;
    if (dimensions < 1 || dimensions > HALO_DIMENSIONS) return MPI_ERR_DIMS;
    memset(domain, 0, sizeof *domain);
    MPI_Comm_size(communicator, &ranks);
    MPI_Comm_rank(communicator, &domain->rank);
    domain->dimensions = dimensions;
    for (int d = 0; d < HALO_DIMENSIONS; d++) {
        domain->shape[d] = d < dimensions ? shape[d] : 1;
        domain->width[d] = d < dimensions ? width[d] : 0;
        domain->periodic[d] = d < dimensions && periodic[d];
        domain->grid[d] = d < dimensions ? (grid ? grid[d] : 0) : 1;
        free_dimensions += domain->grid[d] == 0;
    }
    if (free_dimensions && (error = MPI_Dims_create(ranks, dimensions, domain->grid)) != MPI_SUCCESS) return error;
    for (int d = 0; d < HALO_DIMENSIONS; d++) product *= domain->grid[d];
    if (product != ranks) return MPI_ERR_DIMS;
    rest = domain->rank;
    for (int d = HALO_DIMENSIONS - 1; d >= 0; d--) {
        int parts = domain->grid[d], least = domain->width[d] > 1 ? domain->width[d] : 1;
        if (parts < 1 || domain->width[d] < 0 || domain->shape[d] / parts < least) return MPI_ERR_ARG;
        domain->place[d] = rest % parts;
        rest /= parts;
        domain->start[d] = halo_bound(domain->shape[d], parts, domain->place[d]);
        domain->cells[d] = halo_bound(domain->shape[d], parts, domain->place[d] + 1) - domain->start[d];
        domain->padded[d] = domain->cells[d] + 2 * domain->width[d];
    }
    for (int n = 0; n < HALO_DIRECTIONS; n++) domain->neighbour[n] = halo_neighbour(domain, n);
    return MPI_Comm_dup(communicator, &domain->communicator); /* the program's own messages may have the same tags */
}

static inline int halo_domain_free(halo_domain *domain) { return MPI_Comm_free(&domain->communicator); }

/* Number of elements of a padded array with one component. */
static inline size_t halo_size(const halo_domain *domain) {
    return (size_t)domain->padded[0] * (size_t)domain->padded[1] * (size_t)domain->padded[2];
}

/* Index of an element of a padded array; 0 for dimensions that the grid lacks. */
static inline size_t halo_at(const halo_domain *domain, int component, long i, long j, long k) {
    size_t row = ((size_t)component * (size_t)domain->padded[0] + (size_t)i) * (size_t)domain->padded[1] + (size_t)j;
    return row * (size_t)domain->padded[2] + (size_t)k;
}

/* The own cells. */
static inline halo_region halo_cells(const halo_domain *domain) {
    halo_region region;
    for (int d = 0; d < HALO_DIMENSIONS; d++) {
        region.low[d] = domain->width[d];
        region.high[d] = domain->width[d] + domain->cells[d];
    }
    return region;
}

/* The own cells that are `width` cells or more from the halo; empty if the block is too small. */
static inline halo_region halo_interior(const halo_domain *domain) {
    halo_region region;
    for (int d = 0; d < HALO_DIMENSIONS; d++) {
        region.low[d] = 2L * domain->width[d];
        region.high[d] = domain->cells[d] > region.low[d] ? domain->cells[d] : region.low[d];
    }
    return region;
}

/* The other own cells, as strips that do not overlap; returns their number, none of which is empty. */
static inline int halo_rim(const halo_domain *domain, halo_region strips[HALO_RIM]) {
    halo_region cells = halo_cells(domain), interior = halo_interior(domain), rest = cells;
    int count = 0;
    for (int d = 0; d < HALO_DIMENSIONS; d++) {
        halo_region first = rest, last = rest;
        first.high[d] = interior.low[d];
        last.low[d] = interior.high[d];
        rest.low[d] = interior.low[d]; /* strips of later dimensions are as long as the interior in this one */
        rest.high[d] = interior.high[d];
        for (int side = 0; side < 2; side++) {
            const halo_region *strip = side ? &last : &first;
            int empty = 0;
            for (int e = 0; e < HALO_DIMENSIONS; e++) empty |= strip->low[e] >= strip->high[e];
            if (!empty) strips[count++] = *strip;
        }
    }
    return count;
}

/* Own cells that the neighbour in a direction has in its halo; with `received`, the halo that has its cells. */
static inline halo_region halo_strip(const halo_domain *domain, int number, int received) {
    int side[HALO_DIMENSIONS];
    halo_region region = halo_cells(domain);
    halo_direction(number, side);
    for (int d = 0; d < HALO_DIMENSIONS; d++) {
        long width = domain->width[d], cells = domain->cells[d];
        if (side[d] == 0) continue;
        region.low[d] = side[d] < 0 ? (received ? 0 : width) : (received ? width + cells : cells);
        region.high[d] = region.low[d] + width;
    }
    return region;
}

static inline int halo_type(const halo_field *field, const halo_region *region, MPI_Datatype element,
                            MPI_Datatype *type) {
    int sizes[] = {field->components, 0, 0, 0}, counts[] = {field->components, 0, 0, 0}, starts[] = {0, 0, 0, 0};
    int error;
    for (int d = 0; d < HALO_DIMENSIONS; d++) {
        sizes[d + 1] = (int)field->domain->padded[d];
        counts[d + 1] = (int)(region->high[d] - region->low[d]);
        starts[d + 1] = (int)region->low[d];
    }
    error = MPI_Type_create_subarray(HALO_DIMENSIONS + 1, sizes, counts, starts, MPI_ORDER_C, element, type);
    return error != MPI_SUCCESS ? error : MPI_Type_commit(type);
}

/* Free the types of a field; its data is the program's. */
static inline void halo_field_free(halo_field *field) {
    for (int n = 0; n < HALO_DIRECTIONS; n++) {
        if (field->sent[n] != MPI_DATATYPE_NULL) MPI_Type_free(&field->sent[n]);
        if (field->received[n] != MPI_DATATYPE_NULL) MPI_Type_free(&field->received[n]);
    }
}

/* Prepare the exchange of an array of components * halo_size(domain) elements, of a type without gaps. The domain must
 * stay where it is. Between halo_begin and halo_finish the halo is neither read nor written, and own cells less than
 * `width` from it are not written. All ranks begin the exchanges of a domain's fields in the same order. */
static inline int halo_field_init(halo_field *field, const halo_domain *domain, void *data, MPI_Datatype element,
                                  int components) {
    int size, error = MPI_Type_size(element, &size);
    field->domain = domain, field->data = data, field->components = components, field->pending = -1;
    field->size = (size_t)size;
    for (int n = 0; n < HALO_DIRECTIONS; n++) field->sent[n] = field->received[n] = MPI_DATATYPE_NULL;
    for (int n = 0; n < HALO_DIRECTIONS && error == MPI_SUCCESS; n++) {
        halo_region sent = halo_strip(domain, n, 0), received = halo_strip(domain, n, 1);
        if (domain->neighbour[n] == MPI_PROC_NULL) continue;
        error = halo_type(field, &sent, element, &field->sent[n]);
        if (error == MPI_SUCCESS) error = halo_type(field, &received, element, &field->received[n]);
    }
    if (error != MPI_SUCCESS) halo_field_free(field);
    return error;
}

/* Copy the cells of a region to another of the same shape. */
static inline void halo_copy(const halo_field *field, const halo_region *to, const halo_region *from) {
    size_t bytes = (size_t)(to->high[2] - to->low[2]) * field->size;
    char *data = field->data;
    for (int c = 0; c < field->components; c++)
        for (long i = 0; i < to->high[0] - to->low[0]; i++)
            for (long j = 0; j < to->high[1] - to->low[1]; j++) {
                size_t target = halo_at(field->domain, c, to->low[0] + i, to->low[1] + j, to->low[2]);
                size_t source = halo_at(field->domain, c, from->low[0] + i, from->low[1] + j, from->low[2]);
                memcpy(data + field->size * target, data + field->size * source, bytes);
            }
}

/* Complete a halo whose messages are received: in a periodic dimension with one rank the cells around a block are at
 * its other side, with their own halo in the dimensions before. Two copies in place of two thirds of all messages. */
static inline void halo_wrap(const halo_field *field) {
    const halo_domain *domain = field->domain;
    halo_region part = halo_cells(domain); /* of each dimension, cells that are received, or else own */
    for (int d = 0; d < HALO_DIMENSIONS; d++) {
        int below = domain->periodic[d] ? domain->grid[d] > 1 : domain->place[d] > 0;
        int above = domain->periodic[d] ? domain->grid[d] > 1 : domain->place[d] < domain->grid[d] - 1;
        if (below) part.low[d] = 0;
        if (above) part.high[d] = domain->padded[d];
    }
    for (int d = 0; d < HALO_DIMENSIONS; d++) {
        long width = domain->width[d], cells = domain->cells[d];
        if (!domain->periodic[d] || domain->grid[d] > 1 || width == 0) continue;
        for (int side = 0; side < 2; side++) {
            halo_region to = part, from = part;
            to.low[d] = side ? width + cells : 0;
            from.low[d] = side ? width : cells;
            to.high[d] = to.low[d] + width;
            from.high[d] = from.low[d] + width;
            halo_copy(field, &to, &from);
        }
        part.low[d] = 0;
        part.high[d] = domain->padded[d];
    }
}

/* Begin to send own cells and to receive the halo. Returns MPI_ERR_PENDING if an exchange is under way. */
static inline int halo_begin(halo_field *field) {
    const halo_domain *domain = field->domain;
    int error = MPI_SUCCESS;
    if (field->pending >= 0) return MPI_ERR_PENDING;
    field->pending = 0;
    /* Receives come first: a message that arrives before its receive is copied once more. */
    for (int n = 0; n < HALO_DIRECTIONS && error == MPI_SUCCESS; n++)
        if (field->received[n] != MPI_DATATYPE_NULL) /* the neighbour sends it in the opposite direction */
            error = MPI_Irecv(field->data, 1, field->received[n], domain->neighbour[n], HALO_DIRECTIONS - 1 - n,
                              domain->communicator, &field->requests[field->pending++]);
    for (int n = 0; n < HALO_DIRECTIONS && error == MPI_SUCCESS; n++)
        if (field->sent[n] != MPI_DATATYPE_NULL)
            error = MPI_Isend(field->data, 1, field->sent[n], domain->neighbour[n], n, domain->communicator,
                              &field->requests[field->pending++]);
    return error;
}

/* Let MPI move what it can without waiting; most libraries move large messages in calls only. */
static inline int halo_progress(halo_field *field) {
    int done;
    if (field->pending < 0) return MPI_ERR_REQUEST;
    return MPI_Testall(field->pending, field->requests, &done, MPI_STATUSES_IGNORE);
}

/* Wait until the halo is received and own cells are sent. Returns MPI_ERR_REQUEST if no exchange is under way. */
static inline int halo_finish(halo_field *field) {
    int pending = field->pending, error;
    if (pending < 0) return MPI_ERR_REQUEST;
    field->pending = -1;
    error = MPI_Waitall(pending, field->requests, MPI_STATUSES_IGNORE);
    if (error == MPI_SUCCESS) halo_wrap(field);
    return error;
}

#endif
