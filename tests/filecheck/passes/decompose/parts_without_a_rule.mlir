// RUN: distir-opt %s -p shardcombine-annotate,decompose | filecheck %s

// The gradient of a slice of a weight's columns puts values into zeros: the zeros, of which no operand is cut, do not get the rule of
// the operation that they are a part of.

// CHECK:      [[H:%.*]] = "aten.mm"
// CHECK-NEXT: [[ZEROS:%.*]] = "aten.full"() <{size = array<i64: 6, 9>, fill_value = 0 : i64, dtype = f32}> : () -> tensor<6x9xf32>
// CHECK-NEXT: [[Y:%.*]] = "aten.slice_scatter"([[ZEROS]], [[H]]) {{.*}}dist.rule
// CHECK-NEXT: func.return [[Y]]
func.func @main(%x: tensor<6x8xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<8x4xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<6x9xf32> {dist.name = "y", dist.role = "output"}) {
  %h = "aten.mm"(%x, %w) : (tensor<6x8xf32>, tensor<8x4xf32>) -> tensor<6x4xf32>
  %y = "aten.slice_backward"(%h) <{input_sizes = array<i64: 6, 9>, dim = 1 : i64, start = 5 : i64, end = 9223372036854775807 : i64, step = 1 : i64}> : (tensor<6x4xf32>) -> tensor<6x9xf32>
  func.return %y : tensor<6x9xf32>
}
