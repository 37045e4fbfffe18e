/* What an expert layer between ranks consists of, for those who time it and those who predict it: exchanges between
 * ranks, and steps inside a rank. The names are those of the benchmark's table. */
#ifndef SPW_KERNELS_LAYER_LAYER_PHASES_H
#define SPW_KERNELS_LAYER_LAYER_PHASES_H

#define SPW_LAYER_PHASE_LIST(X) \
    X(PLAN, "plan") \
    X(FAN_OUT, "fan-out") \
    X(DISPATCH, "dispatch") \
    X(GEMM1, "gemm1") \
    X(SWIGLU, "swiglu") \
    X(GEMM2, "gemm2") \
    X(FAN_IN, "fan-in") \
    X(COMBINE, "combine") \
    X(COMBINE_GRADIENT, "combine gradient") \
    X(FAN_IN_GRADIENT, "fan-in gradient") \
    X(ROUTER_GRADIENT, "router gradient") \
    X(GEMM2_INPUT_GRADIENT, "gemm2 input gradient") \
    X(GEMM2_WEIGHT_GRADIENT, "gemm2 weight gradient") \
    X(SWIGLU_GRADIENT, "swiglu gradient") \
    X(GEMM1_INPUT_GRADIENT, "gemm1 input gradient") \
    X(GEMM1_WEIGHT_GRADIENT, "gemm1 weight gradient") \
    X(FAN_OUT_GRADIENT, "fan-out gradient") \
    X(DISPATCH_GRADIENT, "dispatch gradient")

#endif
