/* The rules of communicators.c about topologies: MPI-3.1, chapter 7. */
#include "communicators.h"

enum { kMost = 64 };

static long value(int from, int to, int k) { return (long)(word(from, to, 9, (size_t)k) >> 8); }

/* 7.5.2: numbers of nodes are divided evenly, what is given stays */
static void dimensions(void) {
    int two[2] = {0, 0}, three[3] = {0, 3, 0}, one[1] = {0};
    MPI_Dims_create(6, 2, two);
    check(two[0] == 3 && two[1] == 2, "MPI_Dims_create(6, 2)");
    MPI_Dims_create(6, 3, three);
    check(three[0] * three[2] == 2 && three[0] >= three[2] && three[1] == 3, "MPI_Dims_create(6, 3) with a 3 given");
    MPI_Dims_create(7, 1, one);
    check(one[0] == 7, "MPI_Dims_create(7, 1)");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int wrong[2] = {4, 0};
    check(MPI_Dims_create(6, 2, wrong) != MPI_SUCCESS, "MPI_Dims_create(6, 2) with a 4 given succeeds");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* A message to each neighbour and from each, by each neighbourhood collective. `to` and `from`: ranks of `comm`, or
 * MPI_PROC_NULL, in the topology's order. Which of our messages to somebody meets which of its receives is the
 * order's, so each has a number: its place in its source's list. */
typedef struct neighbours {
    MPI_Comm comm;
    int sources, targets, from[kMost], to[kMost];
    int number_there[kMost]; /* of source i: the place that we have in its list of targets */
} neighbours_t;

static void exchange(const neighbours_t* all, int n, int wait) {
    const int sources = all->sources, targets = all->targets;
    int me;
    MPI_Comm_rank(all->comm, &me);
    long* const out = allocate((size_t)(targets + 1) * (size_t)(n + kMost) * sizeof *out);
    long* const in = allocate((size_t)(sources + 1) * (size_t)(n + kMost) * sizeof *in);
    const size_t in_bytes = (size_t)(sources + 1) * (size_t)(n + kMost) * sizeof *in;
    int counts[kMost], places[kMost], in_counts[kMost], in_places[kMost];
    MPI_Aint bytes[kMost], in_bytes_at[kMost];
    MPI_Datatype types[kMost], in_types[kMost];
    MPI_Request request = MPI_REQUEST_NULL;
    for (int way = 0; way < 5; way++) {
        const int gathers = way < 2, varies = way != 0 && way != 2;
        memset(in, 0xee, in_bytes);
        int place = 0;
        /* Vectors: as many elements as the sender's rank has, plus the edge's number where edges differ. */
        for (int i = 0; i < targets; i++) {
            counts[i] = varies ? 1 + me % 5 + (gathers ? 0 : i % 3) : n;
            places[i] = place, bytes[i] = place * (MPI_Aint)sizeof(long), types[i] = MPI_LONG, place += counts[i];
        }
        place = 0;
        for (int i = 0; i < sources; i++) {
            in_counts[i] = all->from[i] == MPI_PROC_NULL ? 0
                           : varies ? 1 + all->from[i] % 5 + (gathers ? 0 : all->number_there[i] % 3)
                                    : n;
            in_places[i] = place, in_bytes_at[i] = place * (MPI_Aint)sizeof(long), in_types[i] = MPI_LONG;
            place += way == 0 || way == 2 ? n : in_counts[i];
        }
        const int sent = varies ? 1 + me % 5 : n;
        if (gathers)
            for (int k = 0; k < sent; k++) out[k] = value(me, -1, k);
        else
            for (int i = 0; i < targets; i++)
                for (int k = 0; k < counts[i]; k++) out[places[i] + k] = value(me, i, k);
        MPI_Comm comm = all->comm;
        switch (way * 2 + wait) {
        case 0:
            MPI_Neighbor_allgather(out, n, MPI_LONG, in, n, MPI_LONG, comm);
            break;
        case 1:
            MPI_Ineighbor_allgather(out, n, MPI_LONG, in, n, MPI_LONG, comm, &request);
            break;
        case 2:
            MPI_Neighbor_allgatherv(out, sent, MPI_LONG, in, in_counts, in_places, MPI_LONG, comm);
            break;
        case 3:
            MPI_Ineighbor_allgatherv(out, sent, MPI_LONG, in, in_counts, in_places, MPI_LONG, comm, &request);
            break;
        case 4:
            MPI_Neighbor_alltoall(out, n, MPI_LONG, in, n, MPI_LONG, comm);
            break;
        case 5:
            MPI_Ineighbor_alltoall(out, n, MPI_LONG, in, n, MPI_LONG, comm, &request);
            break;
        case 6:
            MPI_Neighbor_alltoallv(out, counts, places, MPI_LONG, in, in_counts, in_places, MPI_LONG, comm);
            break;
        case 7:
            MPI_Ineighbor_alltoallv(out, counts, places, MPI_LONG, in, in_counts, in_places, MPI_LONG, comm, &request);
            break;
        case 8:
            MPI_Neighbor_alltoallw(out, counts, bytes, types, in, in_counts, in_bytes_at, in_types, comm);
            break;
        default:
            MPI_Ineighbor_alltoallw(out, counts, bytes, types, in, in_counts, in_bytes_at, in_types, comm, &request);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        static const char* const names[] = {"MPI_Neighbor_allgather", "MPI_Neighbor_allgatherv",
                                            "MPI_Neighbor_alltoall", "MPI_Neighbor_alltoallv",
                                            "MPI_Neighbor_alltoallw"};
        for (int i = 0; i < sources; i++) {
            const int count = in_counts[i], from = all->from[i];
            for (int k = 0; k < count; k++)
                check(in[in_places[i] + k] == value(from, gathers ? -1 : all->number_there[i], k), names[way]);
            long untouched;
            memset(&untouched, 0xee, sizeof untouched);
            for (int k = 0; k < n && from == MPI_PROC_NULL && !varies; k++)
                check(in[in_places[i] + k] == untouched, "what MPI_PROC_NULL sends is written");
        }
    }
    free(in), free(out);
}

static void exchanges(const neighbours_t* all) {
    for (int wait = 0; wait < 2; wait++) {
        exchange(all, 1, wait);
        exchange(all, 3000, wait);
    }
}

/* 7.5, 7.6 on grids: coordinates, shifts, parts, neighbours (in each dimension: below, above) */
static void grids(void) {
    for (int dims_count = 1; dims_count <= 3; dims_count++) {
        int dims[3] = {0, 0, 0}, periods[3], got_dims[3], got_periods[3], coords[3], mine[3], status, count, me;
        MPI_Comm grid;
        MPI_Dims_create(ranks, dims_count, dims);
        /* Of a circle of two each is below and above the other: MPI-3.1 does not say which message is which. */
        for (int i = 0; i < dims_count; i++) periods[i] = i != 1 && dims[i] > 2;
        MPI_Cart_create(MPI_COMM_WORLD, dims_count, dims, periods, 1, &grid);
        MPI_Topo_test(grid, &status);
        check(status == MPI_CART, "MPI_Topo_test of a grid");
        MPI_Topo_test(MPI_COMM_WORLD, &status);
        check(status == MPI_UNDEFINED, "MPI_Topo_test of what has no topology");
        MPI_Cartdim_get(grid, &count);
        check(count == dims_count, "MPI_Cartdim_get");
        MPI_Cart_get(grid, dims_count, got_dims, got_periods, mine);
        MPI_Comm_rank(grid, &me);
        for (int i = 0; i < dims_count; i++)
            check(got_dims[i] == dims[i] && !got_periods[i] == !periods[i], "MPI_Cart_get");
        neighbours_t all = {.comm = grid, .sources = 2 * dims_count, .targets = 2 * dims_count};
        int rest = me;
        for (int i = dims_count - 1; i >= 0; i--) { /* the last one fastest */
            check(mine[i] == rest % dims[i], "coordinates are in row-major order");
            rest /= dims[i];
        }
        for (int other = 0; other < ranks; other++) {
            int found;
            MPI_Cart_coords(grid, other, dims_count, coords);
            if (periods[0]) coords[0] += 2 * dims[0]; /* beyond the border, and back */
            MPI_Cart_rank(grid, coords, &found);
            check(found == other, "MPI_Cart_rank of MPI_Cart_coords");
        }
        for (int i = 0; i < dims_count; i++) {
            int below, above, expected[2];
            for (int side = 0; side < 2; side++) {
                memcpy(coords, mine, sizeof coords);
                coords[i] += side ? 1 : -1;
                const int outside = coords[i] < 0 || coords[i] >= dims[i];
                coords[i] = (coords[i] + dims[i]) % dims[i];
                int place = 0;
                for (int d = 0; d < dims_count; d++) place = place * dims[d] + coords[d];
                expected[side] = outside && !periods[i] ? MPI_PROC_NULL : place;
            }
            MPI_Cart_shift(grid, i, 1, &below, &above);
            check(below == expected[0] && above == expected[1], "MPI_Cart_shift");
            for (int side = 0; side < 2; side++) {
                all.from[2 * i + side] = all.to[2 * i + side] = expected[side];
                all.number_there[2 * i + side] = 2 * i + !side; /* we are above whom we have below */
            }
            int keep[3] = {0, 0, 0}, line_rank;
            MPI_Comm line;
            keep[i] = 1;
            MPI_Cart_sub(grid, keep, &line);
            MPI_Comm_size(line, &count);
            MPI_Comm_rank(line, &line_rank);
            check(count == dims[i] && line_rank == mine[i], "MPI_Cart_sub");
            MPI_Cart_get(line, 1, got_dims, got_periods, coords);
            check(got_dims[0] == dims[i] && !got_periods[0] == !periods[i], "the shape of a part of a grid");
            MPI_Comm_free(&line);
        }
        exchanges(&all);
        MPI_Comm_free(&grid);
    }
    /* Fewer than there are: the others have none. */
    int dims[1] = {(ranks + 1) / 2}, periods[1] = {0};
    MPI_Comm grid;
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &grid);
    check((grid == MPI_COMM_NULL) == (rank >= dims[0]), "a grid of a part of the ranks");
    if (grid != MPI_COMM_NULL) MPI_Comm_free(&grid);
}

/* Each to the next one, and to the one behind that; so whom each hears of is known. */
static int target_of(int me, int i) { return (me + 1 + i) % ranks; }
static int targets_of(int me) { return me % 3 == 2 || ranks < 3 ? 1 : 2; }

static void set_neighbours(neighbours_t* all, MPI_Comm comm, const int* sources, const int* targets) {
    all->comm = comm;
    for (int i = 0; i < all->targets; i++) all->to[i] = targets[i];
    for (int i = 0; i < all->sources; i++) {
        all->from[i] = sources[i];
        for (int k = 0; k < targets_of(sources[i]); k++)
            if (target_of(sources[i], k) == rank) all->number_there[i] = k;
    }
}

/* 7.5.3, 7.5.4: graphs of which each names a part */
static void distributed_graphs(void) {
    int sources[kMost], targets[kMost], source_weights[kMost], target_weights[kMost], in = 0, out = targets_of(rank);
    for (int other = 0; other < ranks; other++)
        for (int i = 0; i < targets_of(other); i++)
            if (target_of(other, i) == rank) source_weights[in] = 10 * other + i, sources[in++] = other;
    for (int i = 0; i < out; i++) targets[i] = target_of(rank, i), target_weights[i] = 10 * rank + i;
    for (int way = 0; way < 3; way++) { /* all say their own; each its own targets; the first says everything */
        MPI_Comm graph;
        int status, found_in, found_out, weighted, weights_in[kMost], weights_out[kMost];
        int got_in[kMost], got_out[kMost];
        if (way == 0) {
            MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, in, sources, source_weights, out, targets, target_weights,
                                           MPI_INFO_NULL, 0, &graph);
        } else {
            int heads[kMost], degrees[kMost], ends[2 * kMost], weights[2 * kMost], heads_count = 0, at = 0;
            for (int other = 0; other < ranks; other++) {
                if (way == 1 ? other != rank : rank != 0) continue;
                heads[heads_count] = other, degrees[heads_count++] = targets_of(other);
                for (int i = 0; i < targets_of(other); i++)
                    weights[at] = 10 * other + i, ends[at++] = target_of(other, i);
            }
            MPI_Dist_graph_create(MPI_COMM_WORLD, heads_count, heads, degrees, ends, weights, MPI_INFO_NULL, 0, &graph);
        }
        MPI_Topo_test(graph, &status);
        check(status == MPI_DIST_GRAPH, "MPI_Topo_test of a distributed graph");
        MPI_Dist_graph_neighbors_count(graph, &found_in, &found_out, &weighted);
        check(found_in == in && found_out == out && weighted, "MPI_Dist_graph_neighbors_count");
        MPI_Dist_graph_neighbors(graph, in, got_in, weights_in, out, got_out, weights_out);
        /* In the order that is named only with MPI_Dist_graph_create_adjacent; else any, the same each time. */
        for (int i = 0; i < in; i++) {
            int known = way == 0 ? got_in[i] == sources[i] && weights_in[i] == source_weights[i] : 0;
            for (int k = 0; k < in && way; k++) known |= got_in[i] == sources[k] && weights_in[i] == source_weights[k];
            check(known, "a source of a distributed graph");
        }
        for (int i = 0; i < out; i++) {
            int known = way == 0 ? got_out[i] == targets[i] && weights_out[i] == target_weights[i] : 0;
            for (int k = 0; k < out && way; k++)
                known |= got_out[i] == targets[k] && weights_out[i] == target_weights[k];
            check(known, "a target of a distributed graph");
        }
        neighbours_t all = {.sources = in, .targets = out};
        set_neighbours(&all, graph, got_in, got_out);
        if (way) { /* the place in a source's list is its library's order: it says so */
            int places[kMost], heard[kMost];
            MPI_Request requests[2 * kMost];
            for (int i = 0; i < in; i++) MPI_Irecv(&heard[i], 1, MPI_INT, got_in[i], 5, graph, &requests[i]);
            for (int i = 0; i < out; i++) {
                places[i] = i;
                MPI_Isend(&places[i], 1, MPI_INT, got_out[i], 5, graph, &requests[in + i]);
            }
            MPI_Waitall(in + out, requests, MPI_STATUSES_IGNORE);
            for (int i = 0; i < in; i++) all.number_there[i] = heard[i];
        }
        exchanges(&all);
        MPI_Comm copy; /* 7.5.1: MPI_Comm_dup copies the topology */
        MPI_Comm_dup(graph, &copy);
        MPI_Topo_test(copy, &status);
        check(status == MPI_DIST_GRAPH, "a duplicate has no topology");
        all.comm = copy;
        exchange(&all, 1, 0);
        MPI_Comm_free(&copy);
        MPI_Comm_free(&graph);
    }
}

/* 7.5.4: without weights, and with nobody at all */
static void lonely_graphs(void) {
    /* The compiler takes both for arrays without elements, and warns. */
    int* volatile unweighted = MPI_UNWEIGHTED, * volatile empty = MPI_WEIGHTS_EMPTY, * const none = unweighted;
    MPI_Comm graph;
    int in = -1, out = -1, weighted = -1, next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks,
        got[2] = {-1, -1};
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, none, 1, &next, none, MPI_INFO_NULL, 0, &graph);
    MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted);
    check(in == 1 && out == 1 && !weighted, "MPI_UNWEIGHTED");
    MPI_Dist_graph_neighbors(graph, 1, &got[0], none, 1, &got[1], none);
    check(got[0] == before && got[1] == next, "neighbours without weights");
    MPI_Comm_free(&graph);
    /* Only the first and the last have an edge. */
    const int from = ranks > 1 && rank == ranks - 1, to = ranks > 1 && rank == 0, first = 0, last = ranks - 1;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, from, &first, from ? &first : empty, to, &last, to ? &last : empty,
                                   MPI_INFO_NULL, 0, &graph);
    MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted);
    check(in == from && out == to && weighted, "MPI_WEIGHTS_EMPTY");
    neighbours_t all = {.comm = graph, .sources = from, .targets = to, .from = {first}, .to = {last}};
    exchange(&all, 10, 0);
    MPI_Comm_free(&graph);
}

/* 7.5.3: graphs that all name: each with the next and with the one before (a ring), as MPI_Graph_create wants them */
static void graphs(void) {
    int index[kMost], edges[2 * kMost], found[kMost], count, nodes, status;
    const int degree = ranks > 2 ? 2 : 1;
    MPI_Comm graph;
    for (int i = 0; i < ranks; i++) {
        index[i] = (i + 1) * degree;
        edges[i * degree] = (i + 1) % ranks;
        if (degree == 2) edges[i * degree + 1] = (i + ranks - 1) % ranks;
    }
    MPI_Graph_create(MPI_COMM_WORLD, ranks, index, edges, 0, &graph);
    MPI_Topo_test(graph, &status);
    check(status == MPI_GRAPH, "MPI_Topo_test of a graph");
    MPI_Graphdims_get(graph, &nodes, &count);
    check(nodes == ranks && count == ranks * degree, "MPI_Graphdims_get");
    MPI_Graph_neighbors_count(graph, rank, &count);
    check(count == degree, "MPI_Graph_neighbors_count");
    MPI_Graph_neighbors(graph, rank, degree, found);
    check(!memcmp(found, &edges[rank * degree], (size_t)degree * sizeof *found), "MPI_Graph_neighbors");
    neighbours_t all = {.comm = graph, .sources = degree, .targets = degree};
    for (int i = 0; i < degree; i++) {
        all.from[i] = all.to[i] = found[i];
        all.number_there[i] = degree == 2 ? !i : 0; /* we come before who comes behind us */
    }
    exchanges(&all);
    MPI_Comm_free(&graph);
}

static const rule_t rules[] = {{dimensions, "7.5.2 dimensions"},
                               {grids, "7.5 grids"},
                               {graphs, "7.5.3 graphs"},
                               {distributed_graphs, "7.5.4 distributed graphs"},
                               {lonely_graphs, "7.5.4 graphs without weights"},
                               {NULL, NULL}};

const rule_t* communicators_shapes(void) {
    enter_part();
    return rules;
}
