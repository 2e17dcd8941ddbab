// RUN: distir-opt %s --split-input-file -p apply-sharding | filecheck %s

// A contraction over the cut factor. The input is said to be whole, so each device takes its slice; the weight is not
// said to be anything, so it arrives as its first consumer needs it. Relu has no strategy: it runs whole, on the sum.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [{}, {}]>},
                %w: tensor<8x6xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4x6xf32> {dist.name = "y", dist.role = "output"}) {
  %h = "onnx.MatMul"(%x, %w) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S2}>, dist.note = "kept"} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %y = "onnx.Relu"(%h) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [max: 0 -> 0, min: 0 -> 0], found = exact>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}

// The whole of the first program: parts, devices, and no attribute of level 2 left.
// CHECK:      builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<{{.*}}>} {
// CHECK-NEXT:   func.func @main(
// CHECK-SAME:     %x: tensor<4x8xf32, #dist.on<0>> {dist.name = "x", dist.role = "input", dist.part = #dist.part<[0:4, 0:8] of [4, 8]>}
// CHECK-SAME:     %x_1: tensor<4x8xf32, #dist.on<1>> {dist.name = "x", dist.role = "input", dist.part = #dist.part<[0:4, 0:8] of [4, 8]>}
// CHECK-SAME:     %w: tensor<4x6xf32, #dist.on<0>> {dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[0:4, 0:6] of [8, 6]>}
// CHECK-SAME:     %w_1: tensor<4x6xf32, #dist.on<1>> {dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[4:8, 0:6] of [8, 6]>}
// CHECK-SAME:     -> (tensor<4x6xf32, #dist.on<0>> {dist.name = "y", dist.role = "output", dist.part = #dist.part<[0:4, 0:6] of [4, 6]>}
// CHECK-SAME:     tensor<4x6xf32, #dist.on<1>> {dist.name = "y", dist.role = "output", dist.part = #dist.part<[0:4, 0:6] of [4, 6]>}) {
// CHECK-NEXT:     %0 = dist.slice %x [0:4, 0:4] : tensor<4x8xf32, #dist.on<0>> -> tensor<4x4xf32, #dist.on<0>>
// CHECK-NEXT:     %1 = dist.slice %x_1 [0:4, 4:8] : tensor<4x8xf32, #dist.on<1>> -> tensor<4x4xf32, #dist.on<1>>
// CHECK-NEXT:     %h = "onnx.MatMul"(%0, %w) {dist.note = "kept"} : (tensor<4x4xf32, #dist.on<0>>, tensor<4x6xf32, #dist.on<0>>) -> tensor<4x6xf32, #dist.on<0>>
// CHECK-NEXT:     %h_1 = "onnx.MatMul"(%1, %w_1) {dist.note = "kept"} : (tensor<4x4xf32, #dist.on<1>>, tensor<4x6xf32, #dist.on<1>>) -> tensor<4x6xf32, #dist.on<1>>
// CHECK-NEXT:     %2, %3 = dist.allreduce sum %h, %h_1 :
// CHECK-NEXT:     %y = "onnx.Relu"(%2) : (tensor<4x6xf32, #dist.on<0>>) -> tensor<4x6xf32, #dist.on<0>>
// CHECK-NEXT:     %y_1 = "onnx.Relu"(%3) : (tensor<4x6xf32, #dist.on<1>>) -> tensor<4x6xf32, #dist.on<1>>
// CHECK-NEXT:     func.return %y, %y_1

// -----

// Partial -> sharded.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %h = "onnx.MatMul"(%x, %w) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %y = "onnx.Relu"(%h) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [max: 0 -> 0, min: 0 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S1}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}

// CHECK:      %0, %1 = dist.reducescatter sum %h, %h_1 dim 0 :
// CHECK-SAME: -> (tensor<2x6xf32, #dist.on<0>>, tensor<2x6xf32, #dist.on<1>>)
// CHECK-NEXT: "onnx.Relu"(%0)

// -----

// Sharded -> sharded on another dim -> replicated.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %a = "onnx.Neg"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: 0 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S1}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %b = "onnx.Neg"(%a) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: 0 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %c = "onnx.Neg"(%b) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: 0 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": _}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %c : tensor<4x6xf32>
}

// CHECK:      %0, %1 = dist.alltoall %a, %a_1 split 1 concat 0 : (tensor<2x6xf32, #dist.on<0>>, tensor<2x6xf32, #dist.on<1>>) -> (tensor<4x3xf32, #dist.on<0>>, tensor<4x3xf32, #dist.on<1>>)
// CHECK:      %2, %3 = dist.allgather %b, %b_1 dim 1 : (tensor<4x3xf32, #dist.on<0>>, tensor<4x3xf32, #dist.on<1>>) -> (tensor<4x6xf32, #dist.on<0>>, tensor<4x6xf32, #dist.on<1>>)
// CHECK-NEXT: %c = "onnx.Neg"(%2)

// -----

// Replicated -> partial: a bias joins a partial sum on the first device, zeros on the others. The second Gemm passes
// addends on (`partial(0)` names the rule's `sum: (0, 2) -> 0`), and the result of the entry is partial.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<6xf32> {dist.sharding = #dist.sharding<@mesh, [{}]>},
                %v: tensor<6x6xf32>) -> (tensor<4x6xf32> {dist.name = "y"}) {
  %h = "onnx.Gemm"(%x, %w, %b) {dist.rule = #dist.rule<[S1, S2], [S2, S3], [S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: (0, 2) -> 0, sum: (1, 2) -> 0, sum: S2, 2 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %y = "onnx.Gemm"(%h, %v, %b) {dist.rule = #dist.rule<[S1, S2], [S2, S3], [S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: (0, 2) -> 0, sum: (1, 2) -> 0, sum: S2, 2 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": partial(0)}>} : (tensor<4x6xf32>, tensor<6x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}

// CHECK:      func.func @main
// CHECK-SAME: tensor<4x6xf32, #dist.on<1>> {dist.name = "y", dist.part = #dist.part<[0:4, 0:6] of [4, 6], partial sum>}
// CHECK-NEXT: %0 = dist.zeros : tensor<6xf32, #dist.on<1>>
// CHECK-NEXT: %h = "onnx.Gemm"(%x, %w, %b)
// CHECK-NEXT: %h_1 = "onnx.Gemm"(%x_1, %w_1, %0)
// CHECK-NEXT: %y = "onnx.Gemm"(%h, %v, %b)
// CHECK-NEXT: %y_1 = "onnx.Gemm"(%h_1, %v_1, %0)
// CHECK-NEXT: func.return

// -----

// A mean over equal shards is a sum of halves.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4xf32> {
  %axes = onnx.Constant dense<[1]> : tensor<1xi64>
  %y = "onnx.ReduceMean"(%x, %axes) <{keepdims = 0 : si64}> {dist.rule = #dist.rule<[S1, S2], [_] -> {S1: gather(0), S2: reduce(mean)}, partial = [sum: 0 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x6xf32>, tensor<1xi64>) -> tensor<4xf32>
  %z = "onnx.Neg"(%y) {dist.rule = #dist.rule<[S1] -> {S1: gather(0)}, partial = [sum: 0 -> 0], found = exact>} : (tensor<4xf32>) -> tensor<4xf32>
  func.return %z : tensor<4xf32>
}

// CHECK:      %0 = "onnx.ReduceMean"(%x, %axes)
// CHECK-NEXT: %1 = "onnx.ReduceMean"(%x_1, %axes_1)
// CHECK-NEXT: %y = dist.scale %0 by 1/2 : tensor<4xf32, #dist.on<0>>
// CHECK-NEXT: %y_1 = dist.scale %1 by 1/2 : tensor<4xf32, #dist.on<1>>
// CHECK-NEXT: dist.allreduce sum %y, %y_1 :

// -----

// A reshape's target is rewritten for the shard, on every device; the target for the whole is gone.
dist.mesh @mesh = <["tp" = 3]>
func.func @main(%x: tensor<4x12xf32>) -> tensor<4x3x4xf32> {
  %shape = onnx.Constant dense<[4, 3, 4]> : tensor<3xi64>
  %y = "onnx.Reshape"(%x, %shape) {dist.rule = #dist.rule<[S1, S2], [_] -> {S1: gather(0), S2: gather(1)}, sizes = {shape[0]: S1, shape[1]: S2}, partial = [sum: 0 -> 0, max: 0 -> 0, min: 0 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x12xf32>, tensor<3xi64>) -> tensor<4x3x4xf32>
  func.return %y : tensor<4x3x4xf32>
}

// CHECK:      func.func @main
// CHECK-NEXT: %0 = onnx.Constant dense<[4, 1, 4]> : tensor<3xi64, #dist.on<0>>
// CHECK-NEXT: %y = "onnx.Reshape"(%x, %0) : (tensor<4x4xf32, #dist.on<0>>, tensor<3xi64, #dist.on<0>>) -> tensor<4x1x4xf32, #dist.on<0>>
// CHECK-NEXT: %1 = onnx.Constant dense<[4, 1, 4]> : tensor<3xi64, #dist.on<1>>
// CHECK-NEXT: %y_1 = "onnx.Reshape"(%x_1, %1)
// CHECK-NEXT: %2 = onnx.Constant dense<[4, 1, 4]> : tensor<3xi64, #dist.on<2>>
// CHECK-NEXT: %y_2 = "onnx.Reshape"(%x_2, %2)

// -----

// Functions are templates over the mesh: one body, calls on all devices, conversions between calls. The callee's argument
// is what its first consumer needs, and its result is what its last op gives.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %a = func.call @f(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %b = func.call @f(%a) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %b : tensor<4x6xf32>
}
func.func private @f(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %a = "onnx.Neg"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: 0 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S1}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %b = "onnx.Neg"(%a) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: 0 -> 0], found = exact>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %b : tensor<4x6xf32>
}

// CHECK:      %a, %a_1 = dist.call @f(%x, %x_1) on [0, 1] : (tensor<2x6xf32, #dist.on<0>>, tensor<2x6xf32, #dist.on<1>>) -> (tensor<4x6xf32, #dist.on<0>>, tensor<4x6xf32, #dist.on<1>>)
// CHECK-NEXT: %0 = dist.slice %a [0:2, 0:6]
// CHECK-NEXT: %1 = dist.slice %a_1 [2:4, 0:6]
// CHECK-NEXT: %b, %b_1 = dist.call @f(%0, %1) on [0, 1]
// CHECK:      func.func private @f(%x: tensor<2x6xf32, #dist.on<0>>, %x_1: tensor<2x6xf32, #dist.on<1>>) -> (tensor<4x6xf32, #dist.on<0>>, tensor<4x6xf32, #dist.on<1>>) {
// CHECK:        dist.allgather

// -----

// Two axes, the last one fastest: rows over "dp" (devices 0, 1 against 2, 3), the contraction over "tp" (0 with 1, 2 with 3).
dist.mesh @mesh = <["dp" = 2, "tp" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %h = "onnx.MatMul"(%x, %w) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"dp": S1, "tp": S2}>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %y = "onnx.Relu"(%h) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [max: 0 -> 0, min: 0 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"dp": S1}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}

// CHECK:      builtin.module attributes {dist.devices = 4 : i64, dist.axes = #dist.axes<{{.*}}>} {
// CHECK-NEXT: func.func @main(
// CHECK-SAME: %x_2: tensor<2x4xf32, #dist.on<2>> {dist.part = #dist.part<[2:4, 0:4] of [4, 8]>}
// CHECK-SAME: %w_1: tensor<4x6xf32, #dist.on<1>> {dist.part = #dist.part<[4:8, 0:6] of [8, 6]>}
// CHECK-SAME: %w_2: tensor<4x6xf32, #dist.on<2>> {dist.part = #dist.part<[0:4, 0:6] of [8, 6]>}
// CHECK:      %0, %1 = dist.allreduce sum %h, %h_1 : (tensor<2x6xf32, #dist.on<0>>, tensor<2x6xf32, #dist.on<1>>)
// CHECK-NEXT: %2, %3 = dist.allreduce sum %h_2, %h_3 : (tensor<2x6xf32, #dist.on<2>>, tensor<2x6xf32, #dist.on<3>>)

// -----

// Axes take over each other's dims ("a" columns to rows, "b" rows to columns): one goes through the replicated value, so that
// no dim is ever cut twice.
dist.mesh @mesh = <["a" = 2, "b" = 3]>
func.func @main(%x: tensor<6x12xf32> {dist.sharding = #dist.sharding<@mesh, [{"b"}, {"a"}]>}) -> tensor<6x12xf32> {
  %y = "onnx.Neg"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: 0 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S1, "b": S2}>} : (tensor<6x12xf32>) -> tensor<6x12xf32>
  func.return %y : tensor<6x12xf32>
}

// "a" is gathered (devices 0 and 3, 1 and 4, 2 and 5), "b" exchanged, "a" cut.
// CHECK:      func.func @main(%x: tensor<2x6xf32, #dist.on<0>>
// CHECK-NEXT: %0, %1 = dist.allgather %x, %x_3 dim 1 : (tensor<2x6xf32, #dist.on<0>>, tensor<2x6xf32, #dist.on<3>>) -> (tensor<2x12xf32, #dist.on<0>>, tensor<2x12xf32, #dist.on<3>>)
// CHECK-NEXT: dist.allgather
// CHECK-NEXT: dist.allgather
// CHECK-NEXT: dist.alltoall {{.*}} split 1 concat 0 : (tensor<2x12xf32, #dist.on<0>>, tensor<2x12xf32, #dist.on<1>>, tensor<2x12xf32, #dist.on<2>>) -> (tensor<6x4xf32, #dist.on<0>>, tensor<6x4xf32, #dist.on<1>>, tensor<6x4xf32, #dist.on<2>>)
// CHECK-NEXT: dist.alltoall
// CHECK-NEXT: dist.slice {{.*}} [0:3, 0:4]

// -----

// Addends along "a" that "b" replicates would be added twice: those of the second half leave as zeros.
dist.mesh @mesh = <["a" = 2, "b" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>) -> tensor<4x6xf32> {
  %h = "onnx.MatMul"(%x, %w) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S2}>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  func.return %h : tensor<4x6xf32>
}

// CHECK:      func.func @main
// CHECK:      %0 = dist.zeros : tensor<4x6xf32, #dist.on<1>>
// CHECK-NEXT: %1 = dist.zeros : tensor<4x6xf32, #dist.on<3>>
// CHECK-NEXT: func.return %h, %0, %h_2, %1
