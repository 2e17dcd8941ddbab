// RUN: distir-opt %s -p context-parallel | filecheck %s

// Queries are cut along their sequence, and keys and values are made in the same parts.

// CHECK:      [[K:%.*]] = "onnx.MatMul"(%x, %w) {dist.strategy = #dist.strategy<@mesh, {"cp": S1}>}
// CHECK-NEXT: [[V:%.*]] = "onnx.Relu"(%v) {dist.strategy = #dist.strategy<@mesh, {"cp": S1}>}
// CHECK-NEXT: "attention.forward"(%x, [[K]], [[V]]) <{scale = 5.000000e-01 : f64}> {dist.strategy = #dist.strategy<@mesh, {"cp": S1}>}

func.func @main(%x: tensor<6x8xf32>, %w: tensor<8x8xf32>, %v: tensor<6x4xf32>) -> tensor<6x4xf32> {
  %k = "onnx.MatMul"(%x, %w) : (tensor<6x8xf32>, tensor<8x8xf32>) -> tensor<6x8xf32>
  %u = "onnx.Relu"(%v) : (tensor<6x4xf32>) -> tensor<6x4xf32>
  %o, %s = "attention.forward"(%x, %k, %u) <{scale = 0.5 : f64}> : (tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x4xf32>) -> (tensor<6x4xf32>, tensor<6xf32>)
  func.return %o : tensor<6x4xf32>
}
