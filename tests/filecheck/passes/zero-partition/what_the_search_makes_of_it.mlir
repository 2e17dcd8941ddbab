// RUN: distir-opt %s -p 'zero-partition{stage=1},ilp-shard{mesh="dp=2" machine=dgx-2},apply-sharding' | filecheck %s

// Each device stores its half of the state and computes it anew from its half of what it is added to; the parameter is whole.

// CHECK:      func.func @main(
// CHECK-SAME: dist.name = "w", dist.role = "parameter", dist.part = #dist.part<[0:4] of [4]>
// CHECK-SAME: dist.name = "m", dist.role = "state", dist.part = #dist.part<[0:2] of [4]>
// CHECK-SAME: dist.name = "m", dist.role = "state", dist.part = #dist.part<[2:4] of [4]>
// CHECK-NEXT: [[W:%.*]] = dist.slice %w [0:2]
// CHECK-NEXT: [[W_1:%.*]] = dist.slice %w_1 [2:4]
// CHECK-NEXT: "onnx.Add"([[W]], %m)
// CHECK-NEXT: "onnx.Add"([[W_1]], %m_1)
func.func @main(%w: tensor<4xf32> {dist.name = "w", dist.role = "parameter"}, %m: tensor<4xf32> {dist.name = "m", dist.role = "state"}) -> (tensor<4xf32> {dist.name = "m", dist.role = "state"}) {
  %n = "onnx.Add"(%w, %m) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return %n : tensor<4xf32>
}
