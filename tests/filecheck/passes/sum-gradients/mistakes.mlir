// RUN: distir-opt %s --verify-diagnostics -p 'sum-gradients{batch="z:0"}' | filecheck %s --check-prefix=NAME
// RUN: distir-opt %s --verify-diagnostics -p 'sum-gradients{batch="arg0:2"}' | filecheck %s --check-prefix=DIM
// RUN: distir-opt %s --verify-diagnostics -p 'sum-gradients{entry=step}' | filecheck %s --check-prefix=ENTRY

// Names and dims that the program does not have.

// NAME:  batch: no argument 'z': expected arg0
// DIM:   batch: expected arg0:DIM with a dim of 'arg0', got 'arg0:2'
// ENTRY: no function @step in the module; its functions: @main

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %new : tensor<6x6xf32>
}
