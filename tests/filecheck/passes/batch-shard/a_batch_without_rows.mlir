// RUN: not distir-opt %s -p 'shardcombine-annotate,batch-shard{mesh="dp=2"}' 2>&1 | filecheck %s
// RUN: not distir search %s --machine dgx-2 --devices 2 2>&1 | filecheck %s

// CHECK: the batch of 'x' (dim 0) has no rows
builtin.module {
  func.func @main(%x: tensor<0x3xf32> {dist.name = "x", dist.role = "input"}) -> (tensor<0x6xf32> {dist.name = "y", dist.role = "output"}) {
    %y = "onnx.Concat"(%x, %x) <{axis = 1 : i64}> : (tensor<0x3xf32>, tensor<0x3xf32>) -> tensor<0x6xf32>
    func.return %y : tensor<0x6xf32>
  }
}
