/*
 * Checks that our stand-ins for headers of Open MPI (stand_in) equal those that the
 * library was built with. Objects are filled with bytes that make no sense, the library's
 * functions construct them, and our declarations have to find everything in its place.
 */
#include "pml_glue/ompi/pml_mp.h"

static const int kNoise = 0xa5;

static bool mutex_works(opal_class_t* class, int times) {
    struct {
        opal_mutex_t mutex;
        unsigned char behind[64];
    } room;
    memset(&room, kNoise, sizeof room);
    if (class->cls_sizeof != sizeof room.mutex) return false;
    OBJ_CONSTRUCT_INTERNAL(&room.mutex, class);
    bool works = room.mutex.super.obj_class == class;
    for (int i = 0; works && i < times; i++) works = opal_mutex_trylock(&room.mutex) == 0;
    /* the last try is one too many for a mutex that is not recursive */
    if (works && times == 1) works = opal_mutex_trylock(&room.mutex) != 0;
    for (int i = 0; works && i < times; i++) opal_mutex_unlock(&room.mutex);
    works = works && opal_mutex_atomic_trylock(&room.mutex) == 0;
    for (size_t i = 0; i < sizeof room.behind; i++) works = works && room.behind[i] == kNoise;
    if (works) OBJ_DESTRUCT(&room.mutex);
    return works;
}

/* Whether it has this size, to the byte. Its first and last bytes are set; those behind are not. */
static bool condition_fits(void) {
    struct {
        opal_cond_t condition;
        unsigned char behind[64];
    } room;
    memset(&room, kNoise, sizeof room);
    if (opal_cond_init(&room.condition) != OPAL_SUCCESS) return false;
    const unsigned char *const first = (const unsigned char*)&room.condition, *const last = room.behind - 1;
    bool fits = *first != kNoise && *last != kNoise;
    for (size_t i = 0; i < sizeof room.behind; i++) fits = fits && room.behind[i] == kNoise;
    if (fits) opal_cond_destroy(&room.condition);
    return fits;
}

const char* mca_pml_mp_misfit(void) {
    if (!mutex_works(&opal_mutex_t_class, 1)) return "opal_mutex_t";
    if (!mutex_works(&opal_recursive_mutex_t_class, 2)) return "opal_recursive_mutex_t";
    if (!condition_fits()) return "opal_cond_t";
    return NULL;
}
