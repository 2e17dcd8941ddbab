// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// A contraction over the cut factor. The input is said to be whole, so each device takes its slice; the weight is not said to be anything, so it arrives
// as its first consumer needs it. Relu has no strategy: it runs whole, on the sum.

// CHECK:      builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<{{.*}}>} {
// CHECK-NEXT:   func.func @main(
// CHECK-SAME:     %x: tensor<4x8xf32, #dist.on<0>> {dist.name = "x", dist.role = "input", dist.part = #dist.part<[0:4, 0:8] of [4, 8]>}
// CHECK-SAME:     %x_1: tensor<4x8xf32, #dist.on<1>> {dist.name = "x", dist.role = "input", dist.part = #dist.part<[0:4, 0:8] of [4, 8]>}
// CHECK-SAME:     %w: tensor<4x6xf32, #dist.on<0>> {dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[0:4, 0:6] of [8, 6]>}
// CHECK-SAME:     %w_1: tensor<4x6xf32, #dist.on<1>> {dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[4:8, 0:6] of [8, 6]>}
// CHECK-SAME:     -> (tensor<4x6xf32, #dist.on<0>> {dist.name = "y", dist.role = "output", dist.part = #dist.part<[0:4, 0:6] of [4, 6]>}
// CHECK-SAME:     tensor<4x6xf32, #dist.on<1>> {dist.name = "y", dist.role = "output", dist.part = #dist.part<[0:4, 0:6] of [4, 6]>}) {
// CHECK-NEXT:     [[V0:%.*]] = dist.slice %x [0:4, 0:4] : tensor<4x8xf32, #dist.on<0>> -> tensor<4x4xf32, #dist.on<0>>
// CHECK-NEXT:     [[V1:%.*]] = dist.slice %x_1 [0:4, 4:8] : tensor<4x8xf32, #dist.on<1>> -> tensor<4x4xf32, #dist.on<1>>
// CHECK-NEXT:     [[H:%.*]] = "onnx.MatMul"([[V0]], %w) {dist.note = "kept"} : (tensor<4x4xf32, #dist.on<0>>, tensor<4x6xf32, #dist.on<0>>) -> tensor<4x6xf32, #dist.on<0>>
// CHECK-NEXT:     [[H_1:%.*]] = "onnx.MatMul"([[V1]], %w_1) {dist.note = "kept"} : (tensor<4x4xf32, #dist.on<1>>, tensor<4x6xf32, #dist.on<1>>) -> tensor<4x6xf32, #dist.on<1>>
// CHECK-NEXT:     [[V2:%.*]], [[V3:%.*]] = dist.allreduce sum [[H]], [[H_1]] :
// CHECK-NEXT:     [[Y:%.*]] = "onnx.Relu"([[V2]]) : (tensor<4x6xf32, #dist.on<0>>) -> tensor<4x6xf32, #dist.on<0>>
// CHECK-NEXT:     [[Y_1:%.*]] = "onnx.Relu"([[V3]]) : (tensor<4x6xf32, #dist.on<1>>) -> tensor<4x6xf32, #dist.on<1>>
// CHECK-NEXT:     func.return [[Y]], [[Y_1]]

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [{}, {}]>},
                %w: tensor<8x6xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4x6xf32> {dist.name = "y", dist.role = "output"}) {
  %h = "onnx.MatMul"(%x, %w) {dist.strategy = #dist.strategy<@mesh, {"tp": S2}>, dist.note = "kept"} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  %y = "onnx.Relu"(%h) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
