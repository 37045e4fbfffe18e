#include "sim/score/kernels/table_cluster.h"

#include "sim/read/csv.h"

#include <string.h>

static spw_status read_column(const spw_csv *csv, const char *fallback, spw_cluster *out) {
    const char *name = spw_csv_rows(csv) > 0 ? spw_csv_field(csv, 0, "cluster") : NULL;
    if (name == NULL) name = fallback;
    if (name == NULL)
        return spw_fail(SPW_EARG,
                        "%s: no column `cluster` says where it was measured; name it with --cluster",
                        spw_csv_where(csv));
    for (size_t i = 1; i < spw_csv_rows(csv); i++) {
        const char *other = spw_csv_field(csv, i, "cluster");
        if (other != NULL && strcmp(other, name) != 0)
            return spw_fail(SPW_EFORMAT, "%s:%zu: cluster %s follows %s; one table is of one cluster",
                            spw_csv_where(csv), spw_csv_line(csv, i), other, name);
    }
    return spw_cluster_read(name, NULL, out);
}

spw_status spw_table_cluster(const spw_score_request *request, spw_cluster *out) {
    spw_csv *csv = NULL;
    spw_status status = spw_csv_read(request->table[0], &csv);
    if (status == SPW_OK) status = read_column(csv, request->cluster, out);
    spw_csv_close(csv);
    return status;
}
