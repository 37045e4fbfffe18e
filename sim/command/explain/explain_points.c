#include "sim/command/explain/explain_points.h"

#include "sim/command/command.h"

#include <stdio.h>

static spw_status explain(const spw_explanation *what, const spw_explain_point *point, bool person,
                          spw_table **table) {
    spw_status status = what->add(what->state, point, *table);
    if (status != SPW_OK || !person) return status;
    what->head(what->state, point);
    status = spw_table_print(*table, SPW_FORMAT_TABLE, spw_command_out());
    spw_table_destroy(*table);
    *table = NULL;
    return status == SPW_OK ? spw_table_create(what->columns, table) : status;
}

spw_status spw_explain_points(const spw_job_options *o, const spw_explanation *what) {
    const bool person = o->format == SPW_FORMAT_TABLE;
    const size_t schemes = o->job.schemes, points = o->job.batches * schemes;
    spw_table *table = NULL;
    spw_status status = spw_table_create(what->columns, &table);
    if (!person)
        spw_print_model_doubts(&o->job.model,
                               "spillway: not here: ", spw_command_notes()); /* JSON is rows alone */
    for (size_t i = 0; i < points && status == SPW_OK; i++) {
        const spw_explain_point point = {.job = &o->job,
                                         .scheme = &o->scheme[i % schemes],
                                         .sequences = o->job.sequences_per_gpu[i / schemes],
                                         .batch = i / schemes,
                                         .number = i % schemes};
        if (person && i > 0) printf("\n");
        status = explain(what, &point, person, &table);
    }
    if (status == SPW_OK && !person) status = spw_table_print(table, o->format, spw_command_out());
    spw_table_destroy(table);
    return status;
}
