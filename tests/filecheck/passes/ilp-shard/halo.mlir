// RUN: distir-opt %s -p 'ilp-shard{mesh="a=4" machine=dgx-2}' | filecheck %s
// RUN: distir-opt %s -p 'beam-shard{mesh="a=4" machine=dgx-2}' | filecheck %s
// RUN: distir-opt %s -p 'ilp-shard{mesh="a=4" machine=dgx-2},apply-sharding' | filecheck %s --check-prefix=LOWERED

// One large image of few channels: rows are cut, and neighbours exchange one of them before each convolution: columns, which
// are longer, would cost more. The result stays cut.
func.func @main(%x: tensor<1x8x2048x512xf32> {dist.name = "x", dist.role = "input"},
                %w: tensor<8x8x3x3xf32> {dist.name = "w", dist.role = "parameter"},
                %v: tensor<8x8x3x3xf32> {dist.name = "v", dist.role = "parameter"})
    -> (tensor<1x8x2048x512xf32> {dist.name = "y", dist.role = "output"}) {
  %none = "onnx.NoValue"() <{value}> : () -> none
  %h = "onnx.Conv"(%x, %w, %none) <{pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64]}> : (tensor<1x8x2048x512xf32>, tensor<8x8x3x3xf32>, none) -> tensor<1x8x2048x512xf32>
  %a = "onnx.Relu"(%h) : (tensor<1x8x2048x512xf32>) -> tensor<1x8x2048x512xf32>
  %y = "onnx.Conv"(%a, %v, %none) <{pads = [1 : si64, 1 : si64, 1 : si64, 1 : si64]}> : (tensor<1x8x2048x512xf32>, tensor<8x8x3x3xf32>, none) -> tensor<1x8x2048x512xf32>
  func.return %y : tensor<1x8x2048x512xf32>
}

// CHECK:      %x: tensor<1x8x2048x512xf32> {dist.name = "x", dist.role = "input", dist.sharding = #dist.sharding<@mesh, [{}, {}, {"a"}, {}]>}
// CHECK:      [[H:%.*]] = "onnx.Conv"(%x, {{.*}}S3(halo = 1), S4(halo = 1){{.*}}dist.strategy = #dist.strategy<@mesh, {"a": S3}>
// CHECK-NEXT: [[A:%.*]] = "onnx.Relu"([[H]]) {{.*}}dist.strategy = #dist.strategy<@mesh, {"a": S2}>
// CHECK-NEXT: "onnx.Conv"([[A]], {{.*}}dist.strategy = #dist.strategy<@mesh, {"a": S3}>

// LOWERED:      dist.part<[0:1, 0:8, 512:1024, 0:512] of [1, 8, 2048, 512]>
// LOWERED:      [[X:%\w+]], {{.*}} = dist.exchange %x, %x_1, %x_2, %x_3 dim 2 from [0, 511, 1023, 1535]
// LOWERED-NOT:  dist.allgather
// LOWERED:      [[H:%.*]] = "onnx.Conv"([[X]], %w,
// LOWERED:      [[O:%.*]] = dist.slice [[H]] [0:1, 0:8, 0:512, 0:512]
// LOWERED:      [[A:%.*]] = "onnx.Relu"([[O]])
// LOWERED:      dist.exchange [[A]], {{.*}} dim 2 from [0, 511, 1023, 1535]
// LOWERED-NOT:  dist.allgather
