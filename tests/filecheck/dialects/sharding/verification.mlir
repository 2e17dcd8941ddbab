// RUN: DISTIR_DIAGNOSTICS

// CHECK: expected found = exact, probed or unknown, got guessed
"test.op"() {rule = #dist.rule<[S1] -> {S1: gather(0)}, found = guessed>} : () -> ()

// -----

// CHECK: factor S2 is combined but no input dim or size carries it
"test.op"() {rule = #dist.rule<[S1] -> {S2: gather(0)}>} : () -> ()

// -----

// CHECK: expected one combine per result for every factor
"test.op"() {rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: [gather(1), identity]}>} : () -> ()

// -----

// CHECK: expected gather, reduce or identity, got scatter
"test.op"() {rule = #dist.rule<[S1] -> {S1: scatter(0)}>} : () -> ()

// -----

// CHECK: expected `halo`, `fill`, `stride` or `pieces`, got `width`
"test.op"() {rule = #dist.rule<[S1(width = 1)] -> {S1: gather(0)}>} : () -> ()

// -----

// CHECK: factor S1 cannot lie inside S2: expected another factor
"test.op"() {rule = #dist.rule<[S1] -> {S1: gather(0, outer = S2)}>} : () -> ()

// -----

// CHECK: expected sizes, partial, offset or found, got size
"test.op"() {rule = #dist.rule<[S1] -> {S1: gather(0)}, size = {shape[0]: S1}>} : () -> ()

// -----

// CHECK: expected axis "dp" of size at least 1, got 0
dist.mesh @mesh = <["dp" = 0]>

// -----

// CHECK: expected distinct axes, got ['dp', 'dp']
dist.mesh @mesh = <["dp" = 2, "dp" = 2]>

// -----

// CHECK: expected a device number of at least 0, got -1
"test.op"() {on = #dist.on<-1>} : () -> ()

// -----

// CHECK: expected 2 dims, got 1
"test.op"() {part = #dist.part<[0:4] of [8, 8]>} : () -> ()

// -----

// CHECK: dim 1: range 4:9 does not fit after 0 in 8
"test.op"() {part = #dist.part<[0:4, 4:9] of [8, 8]>} : () -> ()

// -----

// CHECK: dim 0: range 2:6 does not fit after 4 in 8
"test.op"() {part = #dist.part<[0:4 + 2:6] of [8]>} : () -> ()

// -----

// CHECK: expected a positive denominator, got 0
"test.op"() {factor = #dist.rational<1/0>} : () -> ()

// -----

// CHECK: expected zero, kept, ignored, raises or lowers, got lost
"test.op"() {rule = #dist.rule<[S1] -> {S1: gather(0)}, offset = S1(lost = 1)>} : () -> ()
