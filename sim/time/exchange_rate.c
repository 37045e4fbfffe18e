#include "sim/time/exchange_rate.h"

#include <gsl/gsl_interp.h>
#include <math.h>

double spw_exchange_rate(const spw_cluster *cluster, bool combine, double bytes) {
    const spw_exchange_points *e = &cluster->exchange;
    const size_t *rates = combine ? e->combine_gb_per_s : e->dispatch_gb_per_s;
    double x[SPW_EXCHANGE_POINTS], y[SPW_EXCHANGE_POINTS];
    if (e->points == 0) return NAN;
    for (size_t i = 0; i < e->points; i++) {
        x[i] = log((double)e->bytes[i]);
        y[i] = 1e9 * (double)rates[i];
    }
    const double at = log(fmax(bytes, 1.0));
    if (at <= x[0]) return y[0];
    if (at >= x[e->points - 1]) return y[e->points - 1];
    gsl_interp *line = gsl_interp_alloc(gsl_interp_linear, e->points);
    if (line == NULL) return NAN;
    (void)gsl_interp_init(line, x, y, e->points);
    const double rate = gsl_interp_eval(line, x, y, at, NULL);
    gsl_interp_free(line);
    return rate;
}

double spw_exchange_fill(const spw_cluster *cluster, bool combine, double bytes) {
    const double rate = spw_exchange_rate(cluster, combine, bytes);
    return isnan(rate) ? 1.0 : rate / spw_exchange_rate(cluster, combine, 1e15);
}

double spw_exchange_legs(double link_s, double nic_s, double serial) {
    return fmax(link_s, nic_s) + serial * fmin(link_s, nic_s);
}
