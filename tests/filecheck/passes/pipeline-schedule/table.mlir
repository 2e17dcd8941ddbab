// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=4},microbatch{count=2},pipeline-schedule{schedule="%S/Inputs/three.csv"}' | filecheck %s

// A table says which rank has which stage.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %a = "onnx.Relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %b = "onnx.Relu"(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = "onnx.Relu"(%b) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = "onnx.Relu"(%c) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// CHECK:      builtin.module attributes {dist.devices = 3 : i64, dist.axes = #dist.axes<{{.*}}>} {
// CHECK:      [[A:%.*]] = dist.call @forward_0(%{{.*}}) on [2]
// CHECK:      [[A_1:%.*]] = dist.send [[A]] to 0
// CHECK:      [[B:%.*]] = dist.call @forward_1([[A_1]]) on [0]
// CHECK:      [[C:%.*]] = dist.call @forward_2([[B]]) on [0]
// CHECK:      [[C_1:%.*]] = dist.send [[C]] to 1
// CHECK:      dist.call @forward_3([[C_1]]) on [1]
