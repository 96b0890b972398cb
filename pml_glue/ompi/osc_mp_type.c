/* Datatypes as runs of memory, and MPI's operations on elements. */
#include "osc_mp.h"

typedef struct run_list {
    mp_run_t* runs;
    size_t count, room;
    uint32_t unit, extent;
    bool failed;
} run_list_t;

/* Some more elements, one after the other. They join the last block, or repeat it, if they can. */
static void add(run_list_t* list, uint64_t address, uint64_t bytes) {
    mp_run_t* const last = list->count ? &list->runs[list->count - 1] : NULL;
    if (last != NULL && last->repeat == 1 && address == last->address + last->bytes / list->unit * list->extent) {
        last->bytes += bytes;
        return;
    }
    if (last != NULL && last->bytes == bytes) {
        if (last->repeat == 1) last->stride = (int64_t)(address - last->address);
        if (address == last->address + last->repeat * (uint64_t)last->stride) {
            last->repeat++;
            return;
        }
        if (last->repeat == 1) last->stride = 0;
    }
    if (list->count + 1 >= list->room) { /* one is left free for mca_osc_mp_cut() */
        const size_t room = list->room ? 2 * list->room : 16;
        mp_run_t* const grown = realloc(list->runs, room * sizeof *grown);
        if (grown == NULL) {
            list->failed = true;
            return;
        }
        list->runs = grown;
        list->room = room;
    }
    list->runs[list->count++] = (mp_run_t){.address = address, .stride = 0, .bytes = bytes, .repeat = 1};
}

mp_run_t* mca_osc_mp_runs(ompi_datatype_t* type, size_t count, uint64_t address, uint32_t unit, uint32_t extent,
                          mp_run_t* one, size_t* run_count) {
    const uint64_t bytes = count * type->super.size;
    const bool contiguous = unit == extent ? mca_pml_mp_contiguous(type, count) : ompi_datatype_is_predefined(type);
    if (contiguous) {
        *one = (mp_run_t){.address = address + (uint64_t)type->super.true_lb, .stride = 0, .bytes = bytes, .repeat = 1};
        *run_count = 1;
        return one;
    }
    run_list_t list = {.unit = unit, .extent = extent};
    opal_convertor_t convertor;
    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    opal_convertor_copy_and_prepare_for_recv(ompi_proc_local()->super.proc_convertor, &type->super, count,
                                             (void*)(uintptr_t)address, 0, &convertor);
    uint64_t packed = 0; /* where we are */
    bool done;
    do {
        struct iovec pieces[32];
        uint32_t piece_count = sizeof pieces / sizeof *pieces;
        size_t length;
        done = opal_convertor_raw(&convertor, pieces, &piece_count, &length);
        for (uint32_t i = 0; i < piece_count; i++) {
            const uint64_t at = (uint64_t)(uintptr_t)pieces[i].iov_base, size = pieces[i].iov_len;
            if (size == 0) continue;
            if (unit == extent)
                add(&list, at, size);
            else /* elements with gaps: each one begins at its first byte */
                for (uint64_t first = (packed + unit - 1) / unit * unit; first < packed + size; first += unit)
                    add(&list, at + (first - packed), unit);
            packed += size;
        }
    } while (!done);
    opal_convertor_cleanup(&convertor);
    OBJ_DESTRUCT(&convertor);
    if (list.failed) {
        free(list.runs);
        return NULL;
    }
    *run_count = list.count;
    return list.runs;
}

/* A run of blocks that is cut within a block becomes two runs. The list has room for the second one; a run without a
 * list (`one`) has a single block. */
size_t mca_osc_mp_cut(mp_run_t* runs, size_t run_count, uint64_t bytes) {
    size_t i = 0;
    for (; i < run_count; bytes -= runs[i].bytes * runs[i].repeat, i++) {
        mp_run_t* const run = &runs[i];
        if (bytes >= run->bytes * run->repeat) continue;
        const uint64_t whole = bytes / run->bytes, rest = bytes % run->bytes;
        const uint64_t address = run->address + whole * (uint64_t)run->stride;
        run->repeat = whole;
        if (whole != 0) i++;
        if (rest != 0) runs[i++] = (mp_run_t){.address = address, .stride = 0, .bytes = rest, .repeat = 1};
        break;
    }
    return i;
}

/* Types and operations that are there from the beginning, by their numbers in Fortran. The progress thread
 * must not ask Open MPI for them: the program may make others meanwhile, and its tables have no lock then. */
enum { kMostIndexes = 128 }; /* there are some 70 types, before any others */
static ompi_datatype_t *types[kMostIndexes], *originals[OMPI_DATATYPE_MAX_PREDEFINED];
static ompi_op_t* ops[kMostIndexes];

void mca_osc_mp_learn_types(void) {
    static bool known;
    for (int i = 0; !known && i < kMostIndexes; i++) {
        ompi_datatype_t* const type = PMPI_Type_f2c(i);
        ompi_op_t* const op = PMPI_Op_f2c(i);
        if (op != NULL && ompi_op_is_intrinsic(op)) ops[i] = op;
        if (type == NULL || !ompi_datatype_is_predefined(type)) continue;
        types[i] = type;
        if (type->super.size != 0 && type->id >= 0 && type->id < OMPI_DATATYPE_MAX_PREDEFINED &&
            originals[type->id] == NULL)
            originals[type->id] = type;
    }
    known = true;
}

/* MPI's own type that has the same id, and at all ranks the same Fortran index.
 * Types of MPI_Type_create_f90_real() and its like count as predefined, too, but are
 * copies whose index each rank gives at its first request. Called with the lock. */
static ompi_datatype_t* original(const ompi_datatype_t* type) {
    return type->id >= 0 && type->id < OMPI_DATATYPE_MAX_PREDEFINED ? originals[type->id] : NULL;
}

ompi_datatype_t* mca_osc_mp_element(ompi_datatype_t* type) {
    const ompi_datatype_t* const element =
        ompi_datatype_is_predefined(type) ? type : ompi_datatype_get_single_predefined_type_from_args(type);
    return element == NULL ? NULL : original(element);
}

bool mca_osc_mp_defined(const ompi_op_t* op, const ompi_datatype_t* element) {
    if (op == &ompi_mpi_op_replace.op || op == &ompi_mpi_op_no_op.op) return true;
    const int index = element->id < OMPI_DATATYPE_MAX_PREDEFINED ? ompi_op_ddt_map[element->id] : -1;
    return ompi_op_is_intrinsic((ompi_op_t*)op) && index >= 0 && op->o_func.intrinsic.fns[index] != NULL;
}

/* Elements with gaps are packed and unpacked by a convertor. */
static void convert(ompi_datatype_t* type, size_t count, void* memory, void* packed, bool pack) {
    opal_convertor_t convertor;
    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    opal_convertor_t* const local = ompi_proc_local()->super.proc_convertor;
    if (pack) {
        opal_convertor_copy_and_prepare_for_send(local, &type->super, count, memory, 0, &convertor);
        mca_pml_mp_pack(&convertor, 0, packed, count * type->super.size);
    } else {
        opal_convertor_copy_and_prepare_for_recv(local, &type->super, count, memory, 0, &convertor);
        mca_pml_mp_unpack(&convertor, 0, packed, count * type->super.size);
    }
    opal_convertor_cleanup(&convertor);
    OBJ_DESTRUCT(&convertor);
}

/* Room for operands as the operations want them: aligned, and with gaps. Under the lock. */
static void* operands(size_t bytes) {
    static void* room;
    static size_t size;
    if (bytes > size) {
        free(room);
        size = bytes + 16384;
        if (posix_memalign(&room, 64, size) != 0) room = NULL;
        if (room == NULL) size = 0;
    }
    return room;
}

bool mca_osc_mp_apply(uint16_t op_index, uint16_t type_index, uint32_t unit, uint32_t step, void* memory, size_t count,
                      const void* in, void* out) {
    ompi_datatype_t* const type = type_index < kMostIndexes ? types[type_index] : NULL;
    ompi_op_t* const op = op_index < kMostIndexes ? ops[op_index] : NULL;
    if (type == NULL || op == NULL || !ompi_datatype_is_predefined(type) || !mca_osc_mp_defined(op, type)) return false;
    const size_t size = type->super.size, extent = (size_t)(type->super.ub - type->super.lb);
    if (size != unit || extent != step) return false; /* the window's bounds were checked with these */
    const bool gaps = size != extent;
    if (out != NULL) {
        if (gaps)
            convert(type, count, memory, out, true);
        else
            memcpy(out, memory, count * size);
    }
    if (in == NULL || op == &ompi_mpi_op_no_op.op) return true;
    if (op == &ompi_mpi_op_replace.op) {
        if (gaps)
            convert(type, count, memory, (void*)in, false);
        else
            memcpy(memory, in, count * size);
        return true;
    }
    void* const aligned = operands(count * extent);
    if (aligned == NULL) return false;
    if (gaps)
        convert(type, count, aligned, (void*)in, false);
    else
        memcpy(aligned, in, count * size);
    ompi_op_reduce(op, aligned, memory, count, type);
    return true;
}
