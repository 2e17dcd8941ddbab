// RUN: distir-opt %s -p shardcombine-annotate,apply-sharding | filecheck %s

// A bias joins a partial sum on the first device, zeros on the others. The second Gemm passes addends on (`partial(0)` names the
// rule's `sum: (0, 2) -> 0`), and the result of the entry is partial.

// CHECK:      func.func @main
// CHECK-SAME: tensor<4x6xf32, #dist.on<1>> {dist.name = "y", dist.part = #dist.part<[0:4, 0:6] of [4, 6], partial sum>}
// CHECK-NEXT: [[V0:%.*]] = dist.zeros : tensor<6xf32, #dist.on<1>>
// CHECK-NEXT: [[H:%.*]] = "onnx.Gemm"(%x, %w, %b)
// CHECK-NEXT: [[H_1:%.*]] = "onnx.Gemm"(%x_1, %w_1, [[V0]])
// CHECK-NEXT: %y = "onnx.Gemm"([[H]], %v, %b)
// CHECK-NEXT: %y_1 = "onnx.Gemm"([[H_1]], %v_1, [[V0]])
// CHECK-NEXT: func.return

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<6xf32> {dist.sharding = #dist.sharding<@mesh, [{}]>},
                %v: tensor<6x6xf32>) -> (tensor<4x6xf32> {dist.name = "y"}) {
  %h = "onnx.Gemm"(%x, %w, %b) {dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %y = "onnx.Gemm"(%h, %v, %b) {dist.strategy = #dist.strategy<@mesh, {"tp": partial(0)}>} : (tensor<4x6xf32>, tensor<6x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
