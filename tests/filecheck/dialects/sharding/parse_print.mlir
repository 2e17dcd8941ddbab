// RUN: DISTIR_ROUNDTRIP

// CHECK: dist.mesh @mesh = <["dp" = 2, "tp" = 4]>
dist.mesh @mesh = <["dp" = 2, "tp" = 4]>
// CHECK-NEXT: dist.mesh @one = <[]> {tag}
dist.mesh @one = <[]> {tag}

// The matmul of the paper.
// CHECK: rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, found = exact>
"test.op"() {rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, found = exact>} : () -> ()

// No factor, scalar operand, halo, pieces, identity, one combine per result.
// CHECK-NEXT: rule = #dist.rule<[S1(halo = 1), _, S2(pieces = [1, 2])], [] -> {S1: [gather(0, halo = 1), identity], S2: [gather(1, pieces = [1, 2]), reduce(max)]}, found = probed>
"test.op"() {rule = #dist.rule<[S1(halo = 1), _, S2(pieces = [1, 2])], [] -> {S1: [gather(0, halo = 1), identity], S2: [gather(1, pieces = [1, 2]), reduce(max)]}, found = probed>} : () -> ()

// Two rows of the result for a step; zeros beyond a shard's own rows of one operand, and what is there of the other.
// CHECK-NEXT: rule = #dist.rule<[S1(halo = [0, 1])], [S2(halo = 1, fill = zero)] -> {S1: gather(0, halo = [0, -1], stride = 2), S2: reduce(sum)}, found = exact>
"test.op"() {rule = #dist.rule<[S1(halo = [0, 1])], [S2(fill = zero, halo = 1)] -> {S1: gather(0, stride = 2, halo = [0, -1]), S2: reduce(sum)}>} : () -> ()

// A halo that differs by side, of a window that moves on by two; what is discarded is negative.
// CHECK-NEXT: rule = #dist.rule<[S1(halo = [4, 3], stride = 2), S2(halo = [0, -1], stride = 2)] -> {S1: gather(0, halo = [-2, -1]), S2: gather(1)}, found = exact>
"test.op"() {rule = #dist.rule<[S1(halo = [4, 3], stride = 2), S2(stride = 2, halo = [0, -1])] -> {S1: gather(0, halo = [-2, -1]), S2: gather(1)}>} : () -> ()

// `found` is exact unless it says otherwise; the options come in any order.
// CHECK-NEXT: rule = #dist.rule<[S1(halo = 2, pieces = [1, 1])] -> {S1: gather(0)}, found = exact>
"test.op"() {rule = #dist.rule<[S1(pieces = [1, 1], halo = 2)] -> {S1: gather(0)}>} : () -> ()

// Sizes (with no sharded operand: an expand), partial operands (with and without a factor), an offset.
// CHECK-NEXT: rule = #dist.rule<[_], [_] -> {S1: gather(0)}, sizes = {shape[1]: S1}, found = exact>
"test.op"() {rule = #dist.rule<[_], [_] -> {S1: gather(0)}, sizes = {shape[1]: S1}>} : () -> ()
// CHECK-NEXT: rule = #dist.rule<[S1], [_] -> {S1: reduce(sum)}, partial = [sum: 0 -> 0, sum: S1, 1 -> 0, max: (0, 1) -> (0, 1)], offset = S1, found = exact>
"test.op"() {rule = #dist.rule<[S1], [_] -> {S1: reduce(sum)}, partial = [sum: 0 -> 0, sum: S1, 1 -> 0, max: (0, 1) -> (0, 1)], offset = S1>} : () -> ()

// What is done about indices of other shards' positions.
// CHECK-NEXT: rule = #dist.rule<[S1, S2, S3], [_] -> {S1: gather(0), S2: gather(1), S3: gather(2)}, offset = S1(ignored = -1), offset = S2(kept = 0), offset = S3(zero = 2), found = exact>
"test.op"() {rule = #dist.rule<[S1, S2, S3], [_] -> {S1: gather(0), S2: gather(1), S3: gather(2)}, offset = S1(ignored = -1), offset = S2(kept = 0), offset = S3(zero = 2)>} : () -> ()

// Offsets that shift an integer of the op.
// CHECK-NEXT: rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, offset = S1(raises = diagonal[0]), offset = S2(lowers = diagonal[0]), found = exact>
"test.op"() {rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, offset = S1(raises = diagonal[0]), offset = S2(lowers = diagonal[0])>} : () -> ()

// Views: a dim that is a product of factors, a factor inside another of a merged dim, a size that is a product.
// CHECK-NEXT: rule = #dist.rule<[S1 * S2, S3] -> {S1: gather(0), S2: gather(1), S3: gather(1, outer = S2)}, sizes = {shape[1]: S2 * S3}, found = exact>
"test.op"() {rule = #dist.rule<[S1 * S2, S3] -> {S1: gather(0), S2: gather(1), S3: gather(1, outer = S2)}, sizes = {shape[1]: S2 * S3}>} : () -> ()

// An op that cannot be cut, and one without operands.
// CHECK-NEXT: rule = #dist.rule<[_] -> {}, found = exact>
"test.op"() {rule = #dist.rule<[_] -> {}>} : () -> ()
// CHECK-NEXT: rule = #dist.rule<-> {S1: gather(0)}, sizes = {shape[0]: S1}, found = exact>
"test.op"() {rule = #dist.rule<-> {S1: gather(0)}, sizes = {shape[0]: S1}>} : () -> ()

// CHECK-NEXT: strategy = #dist.strategy<@mesh, {"dp": S1, "tp": S3(pieces = [8, 8]), "mb": partial(0), "pp": _}>
"test.op"() {strategy = #dist.strategy<@mesh, {"dp": S1, "tp": S3(pieces = [8, 8]), "mb": partial(0), "pp": _}>} : () -> ()
// CHECK-NEXT: strategy = #dist.strategy<@mesh, {}>
"test.op"() {strategy = #dist.strategy<@mesh, {}>} : () -> ()

// CHECK-NEXT: sharding = #dist.sharding<@mesh, [{"dp", "cp"}, {}, {"tp" [8, 4, 4]}], partial = {"pp": sum, "mb": max}>
"test.op"() {sharding = #dist.sharding<@mesh, [{"dp", "cp"}, {}, {"tp" [8, 4, 4]}], partial = {"pp": sum, "mb": max}>} : () -> ()
// CHECK-NEXT: sharding = #dist.sharding<@mesh, []>
"test.op"() {sharding = #dist.sharding<@mesh, []>} : () -> ()
