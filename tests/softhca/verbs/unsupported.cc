// Sharing objects between processes by handle: libibverbs 1.10 and 1.13 have it, this adapter does not.
#include "verbs/face.h"

using namespace softhca::face;

VERBS_API ibv_pd* ibv_import_pd(ibv_context*, uint32_t) { return fail_null(EOPNOTSUPP); }
VERBS_API void ibv_unimport_pd(ibv_pd*) {}
VERBS_API ibv_mr* ibv_import_mr(ibv_pd*, uint32_t) { return fail_null(EOPNOTSUPP); }
VERBS_API void ibv_unimport_mr(ibv_mr*) {}
VERBS_API ibv_dm* ibv_import_dm(ibv_context*, uint32_t) { return fail_null(EOPNOTSUPP); }
VERBS_API void ibv_unimport_dm(ibv_dm*) {}
