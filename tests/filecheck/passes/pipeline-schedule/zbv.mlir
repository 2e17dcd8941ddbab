// RUN: distir-opt %s -p 'shardcombine-annotate,pipeline-stages{stages=2 virtual=2},microbatch{count=2},pipeline-schedule{schedule=zbv}' | filecheck %s

// Four stages on two ranks in a V: on the way back each is on the rank that it came from, and a value that stays on its rank is not sent.
func.func @main(%x: tensor<4x8xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<4x8xf32> {dist.name = "y", dist.role = "output"}) {
  %a = "onnx.Relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %b = "onnx.Relu"(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = "onnx.Relu"(%b) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = "onnx.Relu"(%c) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  func.return %y : tensor<4x8xf32>
}

// CHECK:        builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<{{.*}}>} {
// CHECK:        [[B:%.*]] = dist.call @forward_1(%{{.*}}) on [1]
// CHECK:        %c = dist.call @forward_2([[B]]) on [1]
// CHECK-NOT:    dist.send [[B]]
// CHECK:        dist.call @forward_3(%{{.*}}) on [0]
