// RUN: distir-opt %s -p onnx-fold-shapes | filecheck %s

// A loop of known length is its iterations; what it collects is stacked.
func.func @main(%x: tensor<4x8xf32>) -> (tensor<?x?xf32>, tensor<?x?x?xf32>) {
  %three = onnx.Constant dense<3> : tensor<i64>
  %true = onnx.Constant dense<true> : tensor<i1>
  %y, %all = "onnx.Loop"(%three, %true, %x) ({
  ^bb0(%i: tensor<i64>, %c: tensor<i1>, %s: tensor<?x?xf32>):
    %t = "onnx.Add"(%s, %x) {onnx_node_name = "add"} : (tensor<?x?xf32>, tensor<4x8xf32>) -> tensor<?x?xf32>
    onnx.Yield %c, %t, %t : tensor<i1>, tensor<?x?xf32>, tensor<?x?xf32>
  }) : (tensor<i64>, tensor<i1>, tensor<4x8xf32>) -> (tensor<?x?xf32>, tensor<?x?x?xf32>)
  func.return %y, %all : tensor<?x?xf32>, tensor<?x?x?xf32>
}

// CHECK:      func.func @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<3x4x8xf32>) {
// CHECK-NEXT:   [[T:%.*]] = "onnx.Add"(%x, %x) {onnx_node_name = "add.0"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT:   [[T_1:%.*]] = "onnx.Add"([[T]], %x) {onnx_node_name = "add.1"}
// CHECK-NEXT:   [[T_2:%.*]] = "onnx.Add"([[T_1]], %x) {onnx_node_name = "add.2"}
// CHECK:        [[ALL:%.*]] = "onnx.Concat"(%1, %2, %3) <{axis = 0 : si64}>
// CHECK-NEXT:   func.return [[T_2]], [[ALL]] : tensor<4x8xf32>, tensor<3x4x8xf32>
