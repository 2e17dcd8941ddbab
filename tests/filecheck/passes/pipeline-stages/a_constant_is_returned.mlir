// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=1},microbatch{count=2}' | filecheck %s

// State that a step sets to a constant (a place that an optimizer does not use) is of the first stage's updates.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"},
                %t: tensor<8x8xf32> {dist.name = "t", dist.role = "parameter"},
                %s: tensor<1xf32> {dist.name = "s", dist.role = "state"})
    -> (tensor<4x8xf32> {dist.name = "z", dist.role = "output"}, tensor<1xf32> {dist.name = "s", dist.role = "state"}) {
  %a = "onnx.MatMul"(%x, %t) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %z = "onnx.Relu"(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = "onnx.Constant"() <{value = #onnx.tensor<dense<2.0> : tensor<1xf32>>}> : () -> tensor<1xf32>
  func.return %z, %c : tensor<4x8xf32>, tensor<1xf32>
}

// CHECK:      func.func @main
// CHECK:      [[S:%.*]] = func.call @update_0() {dist.stage = 0 : i64, dist.phase = "update"}
// CHECK-NEXT: func.return %{{.*}}, [[S]]
// CHECK:      func.func private @update_0
// CHECK-NEXT: onnx.Constant
