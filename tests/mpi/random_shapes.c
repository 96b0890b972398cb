/* Types for random.c. */
#include "random.h"

enum { kMostBlocks = 64 };

/* Blocks whose lengths grow and fall, each with a gap of its own length, first to last or last to first. */
static MPI_Datatype blocks(int bytes, int backwards) {
    int lengths[kMostBlocks], n = 0;
    MPI_Aint places[kMostBlocks];
    for (int at = 0; at < bytes; n++) {
        int length = 1 + (n * 37 + bytes) % (bytes / 16 + 1);
        if (length > bytes - at || n == kMostBlocks - 1) length = bytes - at;
        lengths[n] = length, places[n] = 2 * at, at += length;
    }
    for (int i = 0, k = n - 1; i < k && backwards; i++, k--) {
        const int length = lengths[i];
        const MPI_Aint place = places[i];
        lengths[i] = lengths[k], places[i] = places[k], lengths[k] = length, places[k] = place;
    }
    MPI_Datatype type;
    MPI_Type_create_hindexed(n, lengths, places, MPI_BYTE, &type);
    return type;
}

MPI_Datatype random_shape(int shape, int bytes, int* count) {
    MPI_Datatype type = MPI_BYTE, parts[2];
    *count = 1;
    if (bytes < 2) shape = 0;
    switch (shape) {
    case 1:
        MPI_Type_vector(bytes, 1, 2, MPI_BYTE, &type);
        break;
    case 2:
        type = blocks(bytes, 0);
        break;
    case 3:
        type = blocks(bytes, 1);
        break;
    case 4: { /* the second half first */
        const int half = bytes / 2;
        MPI_Type_vector(half, 1, 2, MPI_BYTE, &parts[0]);
        parts[1] = blocks(bytes - half, 0);
        MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){2 * (bytes - half), 0}, parts, &type);
        MPI_Type_free(&parts[0]);
        MPI_Type_free(&parts[1]);
        break;
    }
    case 5: { /* as many as divide it */
        int each = bytes % 4 == 0 ? 4 : bytes % 3 == 0 ? 3 : 1;
        MPI_Type_contiguous(each, MPI_BYTE, &parts[0]);
        MPI_Type_create_resized(parts[0], 0, 2 * each, &type);
        MPI_Type_free(&parts[0]);
        *count = bytes / each;
        break;
    }
    default:
        *count = bytes;
        return MPI_BYTE;
    }
    MPI_Type_commit(&type);
    return type;
}

void random_shape_free(MPI_Datatype* type) {
    if (*type != MPI_BYTE) MPI_Type_free(type);
}
