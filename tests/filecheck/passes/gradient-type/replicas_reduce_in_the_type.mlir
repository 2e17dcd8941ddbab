// RUN: distir-opt %s -p 'dtp-parallelize{dp=2 gradient-type=bf16}' | filecheck %s

// What devices send each other of a gradient has the type.

// CHECK:      [[A:%.*]], [[B:%.*]] = dist.call @backward_0
// CHECK-NEXT: [[C:%.*]], [[D:%.*]] = dist.allreduce sum [[A]], [[B]] : (tensor<6x6xbf16, #dist.on<0>>, tensor<6x6xbf16, #dist.on<1>>)
// CHECK-NEXT: dist.call @update_0([[C]], [[D]],

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<4x6xf32>, tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %y, %new : tensor<4x6xf32>, tensor<6x6xf32>
}
