// RUN: distir-opt %s -p recognise-attention | filecheck %s

// What is true for hidden scores is negated: the operation's mask is true for those that count.

// CHECK: [[m:%\S+]] = "aten.reshape"(%hidden) <{shape = array<i64: 1, 5, 7>}>
// CHECK: [[n:%\S+]] = "aten.logical_not"([[m]])
// CHECK: "attention.forward"(%q, {{%\S+}}, %v, [[n]])
func.func @main(%q: tensor<3x5x4xf32>, %kt: tensor<3x4x7xf32>, %v: tensor<3x7x6xf32>, %hidden: tensor<5x7xi1>) -> tensor<3x5x6xf32> {
  %s = "aten.bmm"(%q, %kt) : (tensor<3x5x4xf32>, tensor<3x4x7xf32>) -> tensor<3x5x7xf32>
  %m = "aten.masked_fill.Scalar"(%s, %hidden) <{value = 0xfff0000000000000 : f64}> : (tensor<3x5x7xf32>, tensor<5x7xi1>) -> tensor<3x5x7xf32>
  %p = "aten._softmax"(%m) <{dim = 2 : i64, half_to_float = false}> : (tensor<3x5x7xf32>) -> tensor<3x5x7xf32>
  %o = "aten.bmm"(%p, %v) : (tensor<3x5x7xf32>, tensor<3x7x6xf32>) -> tensor<3x5x6xf32>
  func.return %o : tensor<3x5x6xf32>
}
