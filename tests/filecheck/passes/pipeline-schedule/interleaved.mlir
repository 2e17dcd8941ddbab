// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2 virtual=2},microbatch{count=2},pipeline-schedule{schedule=interleaved}' | filecheck %s

// Four stages on two ranks: stage s is on rank s mod 2. Both microbatches go through a stage before the next of the rank.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %a = "onnx.Relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %b = "onnx.Relu"(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = "onnx.Relu"(%b) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = "onnx.Relu"(%c) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// CHECK:      builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<{{.*}}>} {
// CHECK:      [[A:%.*]] = dist.call @forward_0(%x_1) on [0]
// CHECK-NEXT: [[A_1:%.*]] = dist.send [[A]] to 1
// CHECK:      [[A_2:%.*]] = dist.call @forward_0(%x_2) on [0]
// CHECK-NEXT: [[B:%.*]] = dist.call @forward_1([[A_1]]) on [1]
// CHECK-NEXT: dist.send [[A_2]] to 1
// CHECK-NEXT: [[B_1:%.*]] = dist.send [[B]] to 0
// CHECK-NEXT: %c = dist.call @forward_2([[B_1]]) on [0]
// CHECK:      dist.call @forward_3(%{{.*}}) on [1]
