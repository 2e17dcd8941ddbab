// RUN: distir-opt %s -p 'context-parallel{axis=sp}' | filecheck %s

// A choice along another axis stays, as does one that somebody made along this one.

// CHECK:      [[K:%.*]] = "onnx.MatMul"(%x, %w) {dist.strategy = #dist.strategy<@mesh, {"tp": S3, "sp": S1}>}
// CHECK-NEXT: [[V:%.*]] = "onnx.Relu"(%v) {dist.strategy = #dist.strategy<@mesh, {"sp": S2}>}
// CHECK-NEXT: "attention.forward"(%x, [[K]], [[V]]) {{.*}}dist.strategy = #dist.strategy<@mesh, {"sp": S1}>}

func.func @main(%x: tensor<6x8xf32>, %w: tensor<8x8xf32>, %v: tensor<6x4xf32>) -> tensor<6x4xf32> {
  %k = "onnx.MatMul"(%x, %w) {dist.strategy = #dist.strategy<@mesh, {"tp": S3}>} : (tensor<6x8xf32>, tensor<8x8xf32>) -> tensor<6x8xf32>
  %u = "onnx.Relu"(%v) {dist.strategy = #dist.strategy<@mesh, {"sp": S2}>} : (tensor<6x4xf32>) -> tensor<6x4xf32>
  %o, %s = "attention.forward"(%x, %k, %u) <{scale = 0.5 : f64}> : (tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x4xf32>) -> (tensor<6x4xf32>, tensor<6xf32>)
  func.return %o : tensor<6x4xf32>
}
