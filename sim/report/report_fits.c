/* Whether a row of a report fits. */
#include "sim/report/report_timeline.h"

bool spw_report_row_fits(const spw_report_row *row) { return row->verdict != SPW_VERDICT_OOM; }
