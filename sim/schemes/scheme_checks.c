#include "sim/job/recipe/remat.h"
#include "sim/schemes/list.h"

size_t spw_no_exchanges(const spw_scheme *scheme, const spw_layer_shape *shape,
                        spw_exchange out[SPW_SCHEME_EXCHANGES]) {
    (void)scheme, (void)shape, (void)out;
    return 0;
}

spw_status spw_check_remat(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (!spw_remat_is_megatron(s->remat)) return SPW_OK;
    return spw_fail(SPW_ECONFIG, "scheme '%s': remat %s is Megatron-Core's; none or full would be right",
                    scheme->text, spw_remat_name(s->remat));
}

spw_status spw_check_one_rank(const spw_scheme *scheme, const spw_layer_shape *s) {
    if (s->ranks == 1) return spw_check_remat(scheme, s);
    return spw_fail(
        SPW_ECONFIG,
        "scheme '%s': %s has no expert parallelism, the job has %zu ranks; expert: 1 would be right",
        scheme->text, scheme->type->name, s->ranks);
}

bool spw_scheme_is_of_one_rank(const spw_scheme *scheme) { return scheme->type->check == spw_check_one_rank; }
