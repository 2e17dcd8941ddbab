// RUN: distir-opt %s -p context-parallel | filecheck %s

// What uses gradients by keys and values has them cut along the sequence; arguments of functions are stored in parts.

// CHECK:      %k: tensor<6x8xf32> {dist.stored = {cp = "cut"}}
// CHECK:      [[DQ:%.*]], [[DK:%.*]], [[DV:%.*]] = "attention.backward"{{.*}} {dist.strategy = #dist.strategy<@mesh, {"cp": S1}>}
// CHECK-NEXT: "onnx.Relu"([[DK]]) {dist.strategy = #dist.strategy<@mesh, {"cp": S1}>}

func.func @main(%g: tensor<6x4xf32>, %o: tensor<6x4xf32>, %s: tensor<6xf32>, %q: tensor<6x8xf32>, %k: tensor<6x8xf32>, %v: tensor<6x4xf32>) -> tensor<6x8xf32> {
  %dq, %dk, %dv = "attention.backward"(%g, %o, %s, %q, %k, %v) <{scale = 0.5 : f64}> : (tensor<6x4xf32>, tensor<6x4xf32>, tensor<6xf32>, tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x4xf32>) -> (tensor<6x8xf32>, tensor<6x8xf32>, tensor<6x4xf32>)
  %r = "onnx.Relu"(%dk) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  func.return %r : tensor<6x8xf32>
}
